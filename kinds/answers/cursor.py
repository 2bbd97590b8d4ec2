"""The cursor: the place in the tokens of one answer. Every rule of the grammar gets it, looks at it and moves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from kinds.answers.lexer import END, Broken, Token, Unreadable
from kinds.answers.tree import Node

MAX_DEPTH = 16  # of brackets and commands in each other


class Cursor:
    """The place in the tokens of one answer, and what the rules must remember on their way.

    Brackets and matrices contain whole clauses, whose rule imports theirs. So the cursor of an answer brings this rule
    along. The tokens of a unit have no clauses.
    """

    def __init__(
        self, found: Sequence[Token], rule_of_clauses: Callable[[Cursor], Node] | None = None, science: bool = False
    ) -> None:
        self.tokens, self.at = [*found, END], 0
        self._rule_of_clauses = rule_of_clauses
        self.science = science  # is it an answer of science? Then more letters are units, names and options
        self.depth = 0
        self.no_bar_or_ratio = False  # in |x| and {x | x > 1}, the next bar opens nothing
        self.currency = ""  # of the quantity that is being read: \$ stands before the number
        # A lone 1! or 2! is unreadable, see grammar.py. With another factorial it is a usual factor: \frac{5!}{2!3!}.
        self.has_factorial = any(
            sign.text == "!" and base.kind in ("number", "run") and base.text not in ("0", "1", "2")
            for base, sign in pairwise(self.tokens)
        )

    def read_clause(self) -> Node:
        assert self._rule_of_clauses, "a unit has no clauses"
        return self._rule_of_clauses(self)

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    @property
    def before(self) -> Token:
        return self.tokens[self.at - 1]  # the end if nothing is before

    def ahead(self, distance: int) -> Token:
        place = self.at + distance
        return self.tokens[place] if place < len(self.tokens) else END

    def sees(self, *signs: str) -> bool:
        token = self.tokens[self.at]
        return token.text in signs and token.kind == "sign"

    def take(self, *signs: str) -> str:
        """Take one token; with signs, one of these."""
        if self.now == END or (signs and not self.sees(*signs)):
            raise Unreadable(self.now.text)
        self.at += 1
        return self.before.text

    def takes(self, *signs: str) -> bool:
        """Take one of these signs, if it comes next."""
        is_next = self.sees(*signs)
        self.at += is_next
        return is_next

    def take_character(self) -> str:
        """Take the first character of a token: the x of the run xy, the 1 of the number 12. The rest stays."""
        kind, text, _ = self.now
        if len(text) == 1:
            return self.take()
        self.tokens[self.at] = Token(kind, text[1:])
        return text[0]

    def take_group(self) -> str:
        """Take a token, or a group in braces or parentheses, and return its text: 1    n    {n-1}    (2)."""
        if not self.sees("{", "("):
            return self.take()
        start, nested = self.at, 0
        while nested or self.at == start:
            nested += self.sees("{", "(") - self.sees("}", ")")
            self.take()
        return "".join(token.text for token in self.tokens[start : self.at] if token.text not in ("{", "}")).strip("()")

    def enter(self) -> None:
        """Go into a bracket or a command. Broken if there are too many in each other."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Broken("too deep")
