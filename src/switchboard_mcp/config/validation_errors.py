"""Describes all mistakes in a document: key path, expected type, and the nearest known key.

Loaded only after a document was rejected. Not aware of files. Messages never repeat a value from the document, since it
may be a secret; the exception is a value where only fixed words are allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import inspect

from switchboard_mcp.config.documents import ConfigMistake, join_key, unknown_key_message
from switchboard_mcp.suites.fuzzy import nearest


def walk(value: object, model: type) -> list[ConfigMistake]:
    """Return everything in `value` that `model` does not accept, in document order."""
    return list(_walk(value, inspect.type_info(model), ""))


def _walk(value: object, kind: inspect.Type, path: str) -> Iterator[ConfigMistake]:
    if isinstance(kind, inspect.Metadata):
        yield from _walk(value, kind.type, path)
    elif isinstance(kind, inspect.UnionType):
        yield from _walk_union(value, kind, path)
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        yield from _walk_struct(value, kind, path)
    elif isinstance(kind, inspect.ListType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, kind.item_type, f"{path}[{index}]")
    elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
        for name, item in value.items():
            yield from _walk(item, kind.value_type, join_key(path, str(name)))
    elif not _fits(value, kind):
        yield ConfigMistake(path, _message(value, kind))


def _walk_union(value: object, kind: inspect.UnionType, path: str) -> Iterator[ConfigMistake]:
    if any(_fits(value, option) for option in kind.types):
        return
    for option in kind.types:
        if _same_shape(value, option):
            yield from _walk(value, option, path)
            return
    yield ConfigMistake(path, _message(value, kind))


def _walk_struct(value: dict[str, object], kind: inspect.StructType, path: str) -> Iterator[ConfigMistake]:
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        where = join_key(path, str(name))
        field = fields.get(name)
        if field is not None:
            yield from _walk(item, field.type, where)
        elif kind.forbid_unknown_fields:
            yield ConfigMistake(where, unknown_key_message(name, fields))
    for name, field in fields.items():
        if field.required and name not in value:
            yield ConfigMistake(join_key(path, name), f"missing; expected {_expected(field.type)}.")


def _fits(value: object, kind: inspect.Type) -> bool:
    match kind:
        case inspect.IntType(ge=least, le=most):
            return (
                isinstance(value, int)
                and not isinstance(value, bool)
                and (least is None or value >= least)
                and (most is None or value <= most)
            )
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.NoneType():
            return value is None
        case inspect.LiteralType(values=values):
            return _is_one_of(value, values)
        case inspect.AnyType() | inspect.CustomType():
            return True
        case _:
            return False


def _same_shape(value: object, kind: inspect.Type) -> bool:
    """Return True if `value` has the outer type of `kind`, even if something inside is invalid."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return False


def _is_one_of(value: object, options: Iterable[object]) -> bool:
    # In Python True == 1; in a document they differ.
    return any(type(value) is type(option) and value == option for option in options)


def _message(value: object, kind: inspect.Type) -> str:
    if isinstance(kind, inspect.LiteralType) and isinstance(value, str):
        near = nearest(value, [str(option) for option in kind.values], 1)
        tail = f"; did you mean {_shown(near[0])}?" if near else "."
        return f"expected {_expected(kind)}, found {_shown(value)}{tail}"
    return f"expected {_expected(kind)}, found {_found(value)}."


def _expected(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            return _expected(inner)
        case inspect.IntType(ge=least, le=most):
            upper = f" and at most {most}" if most is not None else ""
            return "a whole number" if least is None else f"a whole number of at least {least}{upper}"
        case inspect.FloatType():
            return "a number"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "text"
        case inspect.LiteralType(values=values):
            return " or ".join(_shown(option) for option in values)
        case inspect.ListType(item_type=inspect.StrType()):
            return "a list of strings"
        case inspect.ListType():
            return "a list"
        case inspect.UnionType(types=types):
            named = [_expected(option) for option in types if not isinstance(option, inspect.NoneType)]
            return " or ".join(sorted(set(named), key=named.index))
        case _:
            return "an object"


def _found(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return _shown(value)
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return f'"{text[:40]}…"' if len(text) > 40 else f'"{text}"'
