"""The worst inputs of 1 MiB that we can make: texts and schemas that a child, a host or Redis may send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

MIB = 1 << 20

# Each is repeated to the wanted size: runs that a pattern matches again and again, or nearly matches.
TEXTS = {
    "letters": "a",
    "capitals": "A",
    "mixed case": "aA",
    "words": "a ",
    "long words": "a" * 127 + " ",
    "spaces": " ",
    "nearly a void": " " * 39 + "x",
    "newlines": "\n",
    "carriage returns": "\r",
    "quotes": '"',
    "backslashes": "\\",
    "escapes": "\\n",
    "escaped escapes": "\\\\\\\\n",
    "unicode escapes": "\\u0041",
    "half surrogates": "\\ud800",
    "percent": "%41",
    "percent and letters": "%41a",
    "sentences": "a. ",
    "closing marks": '.")',
    "zero width": "\u200b",
    "terminal orders": "\x1b[",
    "terminal titles": "\x1b]a",
    "joined pictures": "\u2600\u200d",
    "pictures": "\u2600\ufe0f",
    "combining marks": "a\u0301",
    "flags": "\U0001f1e6",
    "Chinese": "漢",
    "accents": "é",
    "URLs": "://a:b",
    "bearer": "bearer ",
    "cookies": "cookie:",
    "PEM heads": "-----BEGIN ",
    "keys": " sk-a",
    "long keys": " sk-" + "a" * 260,
    "JWTs": " eyJaaaaaaaaaa",
    "secret names": "token=",
    "quoted secrets": '"token": "a\\"b" ',
    "options": " --token-",
    "names of keys": "api key",
    "dates": "2020-01-01T",
    "digits": "1",
    "temporary paths": "/tmp/",
    "ports": "localhost:",
    "braces": "{",
    "brackets": "[",
    "nested objects": '{"a":',
    "empty objects": "{},",
    "ids": '"id":"\\"',
    "slashes": "/",
    "dots": "../",
    "comments": "/**/",
    "commas": ",]",
    "data fields": "data:\n",
    "event ids": "id\n",
    "length headers": "Content-Length: 1\n",
}


def text(name: str, size: int = MIB) -> str:
    """Return one of the texts, of that many bytes at most."""
    unit = TEXTS[name]
    return unit * max(1, size // len(unit.encode("utf-8", "surrogatepass")))


def _nested(depth: int, inner: Any, key: str = "a") -> Any:
    for _ in range(depth):
        inner = {"properties": {key: inner}}
    return inner


# Each returns a schema with about `count` parts.
SCHEMAS: dict[str, Callable[[int], Any]] = {
    "definitions of the same name": lambda count: {
        "$defs": {f"a{i}": {"x": {"properties": {"p": {"$ref": f"#/$defs/a{i}/x"}}}} for i in range(count)},
        "properties": {f"k{i}": {"$ref": f"#/$defs/a{i}/x"} for i in range(count)},
    },
    "properties": lambda count: {"properties": {f"p{i}": {"type": "string"} for i in range(count)}},
    "tiny properties": lambda count: {"properties": {f"{i:x}": {} for i in range(count)}},
    "branches": lambda count: {"anyOf": [{"type": "string"} for _ in range(count)]},
    "empty branches": lambda count: {"anyOf": [{} for _ in range(count)]},
    "empty lists": lambda count: {"enum": [[] for _ in range(count)]},
    "references to one definition": lambda count: {
        "$defs": {"A": {"properties": {"a" * 31: {"type": "string"}}}},
        "properties": {f"{i:x}": {"$ref": "#/$defs/A"} for i in range(count)},
    },
    "a long pointer": lambda count: {"$ref": "#" + "/a" * count},
    "pointers into a list": lambda count: {"anyOf": [{"$ref": f"#/anyOf/{i + 1}"} for i in range(count)]},
    "a chain of references": lambda count: {
        "$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}", "description": "d"} for i in range(count)},
        "$ref": "#/$defs/a0",
    },
    "a tree of references": lambda count: {
        "$defs": {
            f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}, "y": {"$ref": f"#/$defs/a{i + 1}"}}}
            for i in range(count)
        },
        "$ref": "#/$defs/a0",
    },
    "references to every level": lambda count: {
        "properties": {
            "t": _nested(30, {"properties": {f"{i:x}": {} for i in range(count)}}),
            **{f"r{i}": {"$ref": "#/properties/t" + "/properties/a" * i} for i in range(30)},
        }
    },
    "deep choices": lambda count: {
        "anyOf": [
            _nested(30, {"anyOf": [{"type": "null"}, {"type": "string"}]}) for _ in range(count // 30 + 1)
        ]
    },
    "required": lambda count: {"required": [f"{i:x}" for i in range(count)]},
    "types": lambda count: {"type": ["object"] * count, "properties": {f"{i:x}": {} for i in range(count)}},
    "types with a format": lambda count: {"type": ["string"] * count, "format": "f" * count},
    "values": lambda count: {"enum": list(range(count))},
    "descriptions": lambda count: {
        "properties": {f"{i:x}": {"description": "a\n" * 10} for i in range(count)}
    },
    "hidden characters": lambda count: {
        "properties": {f"{i:x}": {"description": "\u200b"} for i in range(count)}
    },
    "one long description": lambda count: {"properties": {"a": {"description": 'x "y\n' * count}}},
    "defaults": lambda count: {"properties": {f"{i:x}": {"default": [[1]]} for i in range(count)}},
    "volatile defaults": lambda count: {"default": "2020-01-01T" * count, "examples": ["1a"] * count},
    "choices of null": lambda count: {
        "properties": {
            f"{i:x}": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]} for i in range(count)
        }
    },
    "header marks": lambda count: {
        "properties": {f"{i:x}": {"type": "string", "x-mcp-header": f"a{i:x}"} for i in range(count)}
    },
    "deep header marks": lambda count: _nested(
        300, {"x-mcp-header": "a", "properties": {f"{i:x}": {} for i in range(count)}}
    ),
}


def schema(name: str, size: int = MIB) -> Any:
    """Return one of the schemas, of about that many bytes."""
    make, count = SCHEMAS[name], 64
    for _ in range(4):
        count = max(1, int(count * size / len(msgspec.json.encode(make(count)))))
    return make(count)
