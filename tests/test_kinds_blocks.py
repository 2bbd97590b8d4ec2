"""kinds/blocks.py: fences where CommonMark has them, and its time. test_kinds_code.py has the blocks in lists."""

import random

import pytest
from judging import costs_at_most, needs

from kinds.blocks import closed_blocks


def blocks_of_commonmark(text):
    """The first word of the info string, and the content, of each closed block, by another parser of CommonMark."""
    from markdown_it import MarkdownIt

    found = []
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "fence" and token.content[-1:] in ("", "\n"):  # a text that ends in a block has no last \n
            lines = token.map[1] - token.map[0]
            if token.content.count("\n") == lines - 2:  # without both fences; an open block has only the first
                found.append(("".join(token.info.split()[:1]), token.content))
    return found


@needs("markdown_it")
def test_blocks_are_those_of_commonmark():
    """Makes impossible: a fence where CommonMark has none, or none where it has one. Without lists: in these the
    reader here is more lenient, as models often indent a list's block too little or too much.
    """
    fences = ["```", "```python", "~~~", "~~~py", "````", "````python", "`````", "``` end", "``", "`", "```x``` is"]
    rng = random.Random(3)
    for _ in range(2_000):
        indents = rng.choices(["", "", " ", "  ", "   ", "    ", "\t"], k=rng.randint(1, 9))
        lines = [indent + rng.choice([*fences, "x", "y = 2", "", "a ``` b"]) for indent in indents]
        text = "\n".join(lines)
        assert list(closed_blocks(text)) == blocks_of_commonmark(text), text


LINES_OF_BLOCKS = [
    "\n",
    "```\n",
    "```python\n",
    "1. ",
    "\t" * 9 + "```\n",
    "`" * 99,
    "~~~ `\n",
    " ",
    "- ```\n",
    "- " * 9,
]


@pytest.mark.parametrize("piece", LINES_OF_BLOCKS)
@pytest.mark.parametrize("start", ["", "```python\n", "- a\n\t\t```\n"])
def test_blocks_are_found_in_linear_time(start, piece):
    """Makes impossible: a text whose blocks take the square of its length, in the trainer's process."""
    text = start + piece * (400_000 // len(piece)) + "x"
    assert costs_at_most(200e-6 * len(text), lambda: list(closed_blocks(text)))  # turns for a character; the most is 42
