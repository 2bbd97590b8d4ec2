"""The fenced blocks of a text in Markdown, read as in CommonMark. `closed_blocks` is the whole reader.

Simplified: in a list item a fence may have any indentation, since models often indent the block of a list too little or
too much. Block quotes are not read.
"""

from collections.abc import Iterator

from kinds.patterns import forward

# A line that may be a fence: marks of list items, indentation, the fence, and the rest of the line.
_FENCE = forward(r"((?:[ \t]*+(?:[-*+]|[0-9]{1,9}+[.)])[ \t]++)*+)([ \t]*+)(`{3,}+|~{3,}+)(.*+)")
_LIST_ITEM = forward(r"[ \t]*+(?:[-*+]|[0-9]{1,9}+[.)])(?:[ \t]|$)")


def closed_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the first word of the info string, and the content, of each closed block, as CommonMark reads them.

    A block opens with a line of at least three ` or ~ after at most three spaces, in a list item after any number. It
    closes with a line of the same character, at least as many, that is indented by at most three spaces, in a list item
    by at most three more than the opening. So ``` inside a sentence is no fence, and neither is an indented ``` in a
    docstring of the block. Each line of the content loses as many spaces as stand before the opening.
    """
    fence, info, width, deepest = "", "", 0, 0  # of the open block; no block is open while `fence` is empty
    lines: list[str] = []
    in_list, after_blank = False, False
    for line in text.split("\n"):
        items, indent, fence_marks, rest = match.groups() if (match := _FENCE.match(line)) else ("", "", "", "")
        if fence:
            if not items and fence_marks.startswith(fence) and not rest.strip() and _columns(indent) <= deepest:
                yield info, "".join(lines)
                fence = ""
            else:
                lines.append(_outdented(line, width) + "\n")
            continue
        if _LIST_ITEM.match(line):
            in_list = True
        elif after_blank and line[:1].strip():  # text at the margin after an empty line ends a list
            in_list = False
        after_blank = not line.strip()
        # A rest with ` is inline code: ```x```.
        if fence_marks and (in_list or _columns(indent) <= 3) and not (fence_marks[0] == "`" and "`" in rest):
            fence, info, width, lines = fence_marks, "".join(rest.split()[:1]), _columns(items + indent), []
            deepest = width + 3 if in_list else 3


def _columns(text: str) -> int:
    """Return the width of a text in which a tab ends at the next multiple of four."""
    return len(text.expandtabs(4))


def _outdented(line: str, width: int) -> str:
    """Return a line without its first `width` columns, as far as they are spaces or tabs."""
    content = line.lstrip(" \t")
    return line[: len(line) - len(content)].expandtabs(4)[width:] + content if width else line
