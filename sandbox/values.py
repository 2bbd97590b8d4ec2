"""Values as JSON. A child writes a program's value with `tagged`; the trainer reads every reply with `read_reply`."""

import json
from typing import Any

MAX_DEPTH = 300  # of lists and objects in a reply. `tagged` writes a dict as three levels, a tuple as two


def tagged(value: Any) -> Any:
    """Return JSON for JSON's types. Tuples, dicts (with any keys) and the names of other types get a tag."""
    if value is None or isinstance(value, bool | float):
        return value if value is None or type(value) in (bool, float) else float(value)
    if isinstance(value, int):
        # Python refuses to write longer integers in decimal, and the trainer to read them.
        return int(value) if value.bit_length() <= 10_000 else {"foreign": "int"}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [tagged(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[tagged(key), tagged(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [tagged(item) for item in value]}
    if type(value).__module__ == "numpy":
        return tagged(value.tolist())
    return {"foreign": type(value).__name__}


def read_reply(text: str | bytes) -> Any:
    """Return the value of a child's reply. ValueError unless it is JSON, nested at most MAX_DEPTH deep.

    A process that met a model's text may send anything. Python's functions for nested values, such as repr and
    json.dumps, raise RecursionError at about 1,000 levels. Every reply is read here, so none of them can meet such a
    value.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("the reply is nested too deeply") from None
    if deeper_than(value, MAX_DEPTH):
        raise ValueError("the reply is nested too deeply")
    return value


def deeper_than(value: Any, depth: int) -> bool:
    """Is a value of JSON nested more than `depth` lists and objects deep? Looks at one layer after the other."""
    layer = [value]
    for _ in range(depth + 1):
        layer = [x for x in layer if isinstance(x, list | tuple | dict)]
        if not layer:
            return False
        layer = [part for x in layer for part in (x.values() if isinstance(x, dict) else x)]
    return True
