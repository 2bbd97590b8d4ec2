"""tools/markdown.py: tables."""

from tools.markdown import table


def test_a_table_by_hand():
    """Makes impossible: a table without the line below its head, which Markdown shows as text; a float of 17 digits."""
    assert table(["a", "b"], [[1, 0.12345]]) == "| a | b |\n| --- | --- |\n| 1 | 0.123 |"
