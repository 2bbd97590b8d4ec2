"""Exceptions in words, and text without control characters, for messages to the user."""

import os
import sys
import traceback


def described(error: BaseException) -> str:
    """Describe an exception in words, with its last line outside of installed packages."""
    frames = [] if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith((sys.prefix, sys.base_prefix, "<"))]
    where = f" ({os.path.basename(users[-1].filename)}, line {users[-1].lineno})" if users else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())[:1000]


def printable(text: str) -> str:
    """Write control characters as Python's escapes, such as \\x1b for the one that starts a terminal's commands.

    For text of a model, a user or an exception in a message: it cannot change the terminal or pretend to be a new line.
    """
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
