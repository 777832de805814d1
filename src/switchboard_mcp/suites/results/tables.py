"""Compact JSON with its lists of similar objects as tables. Exact: the JSON can be rebuilt, character by character.

    {"query":"x","total":3,"items":@1}
    @1 3 rows
    id|name|tags
    1|Ada|["x","y"]
    2|"true"|
    3|"a|b"|null

The first line is the JSON, with `@n` in place of each list. A cell is the text of a string if that can be read as
nothing else, otherwise the JSON of the value. An empty cell is a member that the object does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Raw

MIN_ROWS = 3
MAX_COLUMNS = 60
MIN_FILLED = 0.7
# Trying a table and rebuilding it takes some 30 µs per KB.
MAX_TABLE_CHARS = 64 * 1024

_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode
_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
# A string that must be written as JSON: it would not be kept, or be read as something else.
_QUOTED = re.compile(
    rf'[\x00-\x1f\x7f-\x9f"|\u2028\u2029]|^[\s{{\[@]|\s$|^{_NUMBER}$|^(?:true|false|null|nan|-?inf(?:inity)?)$',
    re.IGNORECASE,
)
_JSON_CELL = re.compile(rf'{_NUMBER}|true|false|null|".*|[{{\[].*', re.DOTALL)
_TITLE = re.compile(r"@(\d+) (\d+) rows")
_PLACE = re.compile(r'"(?:[^"\\]|\\.)*"|@(\d+)')
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')


def to_tables(text: str) -> str | None:
    """Return compact JSON with tables; None if it has no list for one, or cannot be rebuilt exactly from them."""
    if len(text) > MAX_TABLE_CHARS or text[:1] not in ("{", "["):
        return None
    try:
        tables: list[str] = []
        frame = "".join(_frame(text.encode(), tables))
        if not tables:
            return None
        written = "\n".join([frame, *tables])
        return written if from_tables(written) == text else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        return None


def from_tables(written: str) -> str:
    """Return the compact JSON that a text with tables was made of. Raises `ValueError` if it is none."""
    frame, _, rest = written.partition("\n")
    lines = iter(rest.split("\n"))
    lists: dict[str, str] = {}
    for title in lines:
        match = _TITLE.fullmatch(title)
        if match is None:
            raise ValueError(f"not the title of a table: {title[:40]}")
        try:
            columns = [_string_of(cell) for cell in _cells(next(lines))]
            rows = [_object(columns, _cells(next(lines))) for _ in range(int(match[2]))]
        except StopIteration:
            raise ValueError(f"table {match[1]} has too few rows") from None
        lists[match[1]] = f"[{','.join(rows)}]"
    return _PLACE.sub(lambda match: lists[match[1]] if match[1] else match[0], frame)


def _frame(raw: bytes, tables: list[str]) -> Iterator[str]:
    """Yield the JSON with a place for each table, and append the tables."""
    if raw[:1] == b"[":
        items = _decode_list(raw)
        table = _table(items) if len(items) >= MIN_ROWS else ""
        if table:
            tables.append(f"@{len(tables) + 1} {len(items)} rows\n{table}")
            yield f"@{len(tables)}"
            return
        for index, item in enumerate(items):
            yield "," if index else "["
            yield from _frame(bytes(item), tables)
        yield "]" if items else "[]"
    elif raw[:1] == b"{":
        members = _decode_object(raw)
        for index, (name, value) in enumerate(members.items()):
            yield ("," if index else "{") + _encode(name).decode() + ":"
            yield from _frame(bytes(value), tables)
        yield "}" if members else "{}"
    else:
        yield raw.decode()


def _table(items: list[Raw]) -> str:
    """Return the header and the rows; empty if these are not objects with about the same members."""
    if not all(bytes(item)[:1] == b"{" for item in items):
        return ""
    rows = [_decode_object(item) for item in items]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    filled = sum(map(len, rows))
    if len(columns) < 2 or len(columns) > MAX_COLUMNS or filled < MIN_FILLED * len(columns) * len(rows):
        return ""
    lines = ["|".join(_cell(_encode(name)) for name in columns)]
    lines += ["|".join(_cell(bytes(row[name])) if name in row else "" for name in columns) for row in rows]
    return "\n".join(lines)


def _cell(raw: bytes) -> str:
    text = raw.decode()
    if raw[:1] != b'"':
        return text
    string = _decode_string(raw)
    bare = string != "" and _QUOTED.search(string) is None and _encode(string) == raw
    return string if bare else text


def _cells(line: str) -> list[str]:
    """Return the cells of a line. A bar inside of a string, object or list is not a border."""
    cells, start = [], 0
    while True:
        end = line.find("|", _json_end(line, start) if line[start : start + 1] in ('"', "{", "[") else start)
        if end < 0:
            cells.append(line[start:])
            return cells
        cells.append(line[start:end])
        start = end + 1


def _json_end(line: str, start: int) -> int:
    """Return the end of the string, object or list that begins at `start`."""
    depth = 0
    for match in _STRUCTURE.finditer(line, start):
        depth += (match[0] in ("{", "[")) - (match[0] in ("}", "]"))
        if depth == 0:
            return match.end()
    return len(line)


def _object(columns: list[str], cells: list[str]) -> str:
    if len(cells) != len(columns):
        raise ValueError(f"a row has {len(cells)} cells, not {len(columns)}")
    members = (
        f"{_encode(name).decode()}:{cell if _JSON_CELL.fullmatch(cell) else _encode(cell).decode()}"
        for name, cell in zip(columns, cells, strict=True)
        if cell
    )
    return f"{{{','.join(members)}}}"


def _string_of(cell: str) -> str:
    return _decode_string(cell.encode()) if cell[:1] == '"' else cell
