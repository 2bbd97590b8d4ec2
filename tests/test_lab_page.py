"""The reading edition: a row for each function of docs/paper.md, and a browser needs the page alone."""

import sys
from html.parser import HTMLParser

import pytest
from judging import needs

from lab.page import ROWS, caught, main, page, rows, shown, source

MODULES = sorted({function.rpartition(".")[0] for function in rows()})
VOID = {"meta", "br", "wbr"}


class Page(HTMLParser):
    """The ids and links of a page. Raises where a tag is closed that is not open."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.ids, self.tags, self.links = [], [], set(), []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_rows_are_those_of_the_papers_page():
    """Makes impossible: an equation in LaTeX whose function was renamed, a function without code or tests."""
    assert len(rows()) > 30 and ROWS.keys() <= rows().keys()
    for function, (papers, tests) in rows().items():
        assert papers and all(map(caught, tests)), function
        assert function.rpartition(".")[2] in source(function)[0]


def test_numbers_are_short():
    """Makes impossible: a column of 16 digits, or a tuple whose fields have lost their names."""
    assert shown({"a": [1 / 3, True], "b": 2e-9}) == "a = [0.3333, True]\nb = 2e-09"


@needs("latex2mathml")
@needs("pygments")
@pytest.mark.parametrize("module", MODULES)
def test_a_page_stands_alone(module):
    """Makes impossible: a function without its row, a page that needs a script, a network or a missing page."""
    text = page(module, MODULES)
    got = Page(text)
    assert got.ids == [function for function in rows() if function.rpartition(".")[0] == module]
    assert got.tags.isdisjoint({"script", "link", "img", "iframe"}) and "@import" not in text and "url(" not in text
    assert {*got.links} <= {f"{name}.html" for name in MODULES}
    beside = "".join(ROWS.get(function, "") for function in got.ids)
    calls = beside.count(">>> ")
    assert text.count("<math") == beside.count("\n") - calls and text.count("&gt;&gt;&gt; ") >= calls
    assert text.count('class="highlight"') >= len(got.ids)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    """Makes impossible: a traceback where a sentence says what to install."""
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    with pytest.raises(SystemExit, match="pip install latex2mathml pygments"):
        main([str(tmp_path)])
