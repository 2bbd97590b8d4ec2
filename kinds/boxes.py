r"""The boxes of a text in LaTeX: \boxed{...} and \fbox{...}. `last_box` is the whole reader."""

from kinds.patterns import forward

# The paper's longest response, 16,384 tokens, has fewer than 100,000 characters. Only a loop is cut here.
MAX_BOX_DISTANCE = 1_000_000
# Escaped braces and LaTeX's line break \\ are skipped, but not a \boxed whose backslash is doubled.
_BRACE = forward(r"(?P<box>\\(?:boxed|fbox)\s*+\{)|\\[{}]|\\\\(?!boxed)|(?P<open>\{)|(?P<close>\})")
_PERCENT = forward(r"[\s$]{0,8}+(?:\\?%|percent\b)")


def last_box(text: str) -> str | None:
    r"""Return the text in the \boxed{...} that closes last, braces balanced; None if there is none.

    In nested boxes this is the outer one. A box without its closing brace does not count. A percent sign right behind
    the box is added to its text.
    """
    text = text[-MAX_BOX_DISTANCE:]
    first = text.find("box")
    opened: list[int] = []  # the start of the text in each open brace; 0 without \\boxed
    last: tuple[int, int] | None = None  # where the text of the box that closed last starts and ends
    for match in _BRACE.finditer(text, max(first - 3, 0)) if first >= 0 else ():
        brace = match.lastgroup
        if brace in ("box", "open"):
            opened.append(match.end() if brace == "box" else 0)
        elif brace == "close" and opened and (start := opened.pop()):
            last = start, match.start()
    if last is None:
        return None
    return text[slice(*last)] + ("\\%" if _PERCENT.match(text, last[1] + 1) else "")
