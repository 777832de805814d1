"""The shape of a JSON value in one line: names, types and counts, without values."""

from __future__ import annotations

MAX_CHARS = 400
MAX_MEMBERS = 24
MAX_DEPTH = 4
MAX_NAME_CHARS = 60


def shape(value: object) -> str:
    """Return the shape of a value. A list is shown by its length and its first item.

    >>> shape({"total": 2, "items": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]})
    '{total:int,items:[2]{id:int,name:str}}'
    """
    text = _shape(value, 0)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def names(value: object, limit: int = 10_000) -> set[str]:
    """Return the names that occur anywhere in a value, looking at `limit` values at most."""
    members: set[str] = set()
    waiting = [value]
    while waiting and limit:
        limit -= 1
        value = waiting.pop()
        if isinstance(value, dict):
            members.update(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return members


def _shape(value: object, depth: int) -> str:
    if isinstance(value, dict):
        if depth >= MAX_DEPTH:
            return "{…}"
        members = [
            f"{name[:MAX_NAME_CHARS]}:{_shape(item, depth + 1)}"
            for name, item in list(value.items())[:MAX_MEMBERS]
        ]
        more = [f"… {len(value) - MAX_MEMBERS} more"] if len(value) > MAX_MEMBERS else []
        return f"{{{','.join(members + more)}}}"
    if isinstance(value, list):
        return f"[{len(value)}]" + (_shape(value[0], depth + 1) if value and depth < MAX_DEPTH else "")
    if value is None:
        return "null"
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "value")
