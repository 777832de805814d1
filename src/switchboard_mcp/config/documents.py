"""Reads configuration documents: JSON with comments and trailing commas, or TOML, to plain values.

Not aware of what a document means. Also formats key paths for messages, reports mistakes, and renames and drops keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.suites.fuzzy import nearest

# Configuration is written by hand. A larger file was named by mistake and must not fill the memory.
MAX_BYTES = 4 * 1024 * 1024
_CHUNK = 65_536
# Non-blocking: a named pipe in place of a file must not block the start.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK


class ConfigMistake(Struct, frozen=True):
    """A mistake in a document: its key path and a message."""

    key: str
    message: str


class Unreadable(Struct, frozen=True):
    """The reason why a document could not be read; `message` follows the file name in a sentence."""

    message: str


def find_mistakes(value: object, model: type) -> list[ConfigMistake]:
    """Return everything in `value` that `model` does not accept, in document order."""
    from switchboard_mcp.config.validation_errors import walk  # Only needed for rejected documents.

    return walk(value, model)


def unknown_key_message(name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown key."""
    known = list(known)
    if near := nearest(name, known, 1):
        return f"unknown key; did you mean `{near[0]}`?"
    if not known:
        return "unknown key; nothing can be set here."
    return f"unknown key; known here: {', '.join(sorted(known))}."


def read_bytes(path: str) -> bytes | Unreadable | None:
    """Return the content of a file, or None if it does not exist."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return Unreadable(f"cannot be read ({problem.strerror}). Check its permissions.")
    try:
        first = os.read(descriptor, _CHUNK)
        if len(first) < _CHUNK:
            return first
        return _read_rest(descriptor, first)
    except OSError as problem:
        return Unreadable(f"cannot be read ({problem.strerror}). It must be a plain file.")
    finally:
        os.close(descriptor)


def read_document(path: str) -> object | Unreadable | None:
    """Return the values in a JSON or TOML file, or None if it does not exist."""
    data = read_bytes(path)
    if not isinstance(data, bytes):
        return data
    if path.endswith(".toml"):
        return decode_toml(data)
    return decode_json(data)


def decode_json(data: bytes) -> object | Unreadable:
    """Decode JSON. Comments and trailing commas are accepted."""
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_relaxed(data)
    except RecursionError:
        return Unreadable("is nested too deeply.")
    return value


def decode_toml(data: bytes) -> object | Unreadable:
    """Decode TOML."""
    import tomllib  # Only needed for TOML files; the serving path usually has none.

    text = _as_text(data)
    if isinstance(text, Unreadable):
        return text
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        return Unreadable(f"is not valid TOML: {problem}.")
    except RecursionError:
        return Unreadable("is nested too deeply.")


def join_key(path: str, name: str) -> str:
    """Append a member to a key path. A name that contains a dot is quoted."""
    if not name or "." in name or not name.isprintable():
        return f"{path}[{name!r}]"
    return f"{path}.{name}" if path else name


def rename_keys(document: object, renames: Mapping[str, str]) -> list[tuple[str, str]]:
    """Move values from deprecated keys to their current ones, in place.

    `renames` maps dotted paths, old to new. Returns each deprecated key that was present, with a warning about it.
    """
    warnings: list[tuple[str, str]] = []
    for old, new in renames.items():
        parent, _, name = old.rpartition(".")
        section = _section(document, parent)
        if section is None or name not in section:
            continue
        value = section.pop(name)
        new_parent, _, new_name = new.rpartition(".")
        target = _section(document, new_parent, create=True)
        if target is None or new_name in target:
            warnings.append((old, f"deprecated, and ignored because `{new}` is set too. Remove it."))
            continue
        target[new_name] = value
        warnings.append((old, f"deprecated; use `{new}`. The next release no longer accepts the old name."))
    return warnings


def drop_keys(document: object, removed: Mapping[str, str]) -> list[tuple[str, str]]:
    """Remove keys that no longer exist, in place; `*` in a dotted path stands for any name.

    Returns each key that was present, with what to use instead.
    """
    dropped = []
    for pattern, instead in removed.items():
        parent, _, name = pattern.rpartition(".")
        for path, section in _sections(document, parent.split(".") if parent else []):
            if name in section:
                del section[name]
                dropped.append((join_key(path, name), instead))
    return dropped


def _sections(document: object, names: Sequence[str], path: str = "") -> list[tuple[str, dict[str, object]]]:
    """Return the objects at a path, whose names may be `*`, each with its own path."""
    if not isinstance(document, dict):
        return []
    if not names:
        return [(path, document)]
    chosen = document if names[0] == "*" else [name for name in names[:1] if name in document]
    return [found for name in chosen for found in _sections(document[name], names[1:], join_key(path, name))]


def _section(document: object, path: str, *, create: bool = False) -> dict[str, object] | None:
    """Return the object at a dotted path, or None if there is none."""
    for name in path.split(".") if path else ():
        if not isinstance(document, dict):
            return None
        document = document.setdefault(name, {}) if create else document.get(name)
    return document if isinstance(document, dict) else None


def _read_rest(descriptor: int, first: bytes) -> bytes | Unreadable:
    parts = [first]
    size = len(first)
    while part := os.read(descriptor, _CHUNK):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            return Unreadable(
                f"is larger than {MAX_BYTES // 1024 // 1024} MiB, the maximum for a config file."
            )
    return b"".join(parts)


def _as_text(data: bytes) -> str | Unreadable:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line, column = _position(data, problem.start)
        return Unreadable(f"is not UTF-8 at line {line} column {column}. Save it as UTF-8.")


def _decode_relaxed(data: bytes) -> object | Unreadable:
    text = _as_text(data)
    if isinstance(text, Unreadable):
        return text
    if not text.strip():
        return Unreadable("is empty. Write at least {}.")
    # Only needed for files that are not plain JSON.
    from switchboard_mcp.config.jsonc import JsoncError, syntax_error, to_json

    try:
        plain = to_json(text)
    except JsoncError as problem:
        return Unreadable(str(problem))
    try:
        value: object = msgspec.json.decode(plain)
    except msgspec.DecodeError as problem:
        return Unreadable(str(syntax_error(plain, str(problem))))
    except RecursionError:
        return Unreadable("is nested too deeply.")
    return value


def _position(data: bytes, offset: int) -> tuple[int, int]:
    """Return line and column, both counted from 1, the column in characters."""
    before = data[:offset]
    start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[start:].decode("utf-8", "replace")) + 1
