"""Turns names of suites, subtools and parameters into Python names, with a table to translate them back.

Names come from servers, so nothing but an identifier leaves this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from keyword import iskeyword
from unicodedata import normalize

MAX_CHARS = 80
# The interpreter's own modules win over those of suites, at run time and in the checker.
BUILTIN_MODULES = frozenset(
    "asyncio base64 binascii bisect builtins collections copy csv dataclasses datetime decimal functools hashlib "
    "itertools json math os pathlib posixpath random re sys time tomllib typing typing_extensions unicodedata".split()
)
# The module with which a program finds and describes tools.
OWN_MODULE = "switchboard"
RESERVED_MODULES = BUILTIN_MODULES | {OWN_MODULE}
MODULE_SUFFIX = "_suite"
# A name without any letter or digit.
NAMELESS = "unnamed"
_OTHER = re.compile(r"\W")
_NOT_ASCII = re.compile(r"[^A-Za-z0-9_]")


def python_name(name: str) -> str:
    """Return a name as an identifier: not a keyword, without a leading underscore, normalised as Python does."""
    text = _OTHER.sub("_", normalize("NFKC", name[:MAX_CHARS]))[:MAX_CHARS].lstrip("_")
    if text[:1].isdigit():
        text = f"n{text}"
    if text and not text.isidentifier():  # some letters and digits are in no identifier
        text = _NOT_ASCII.sub("_", text).lstrip("_")
        text = f"n{text}" if text[:1].isdigit() else text
    text = text.rstrip("_") and text
    return f"{text}_" if iskeyword(text) else text or NAMELESS


def python_names(names: Iterable[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Return a different identifier for each name. An identifier stays as it is."""
    listed, used = list(dict.fromkeys(names)), set(reserved)
    kept = {name for name in listed if name not in used and python_name(name) == name}
    used |= kept
    counts: dict[str, int] = {}
    return {name: name if name in kept else unused_name(python_name(name), used, counts) for name in listed}


def module_names(suites: Iterable[str]) -> dict[str, str]:
    """Return the name of a module for each suite. One that clashes with a module that exists gets a suffix."""
    table = python_names(suites, RESERVED_MODULES)
    used = set(table.values())
    counts: dict[str, int] = {}
    for suite, name in table.items():
        if python_name(suite) in RESERVED_MODULES:
            used.discard(name)
            table[suite] = unused_name(f"{python_name(suite)}{MODULE_SUFFIX}", used, counts)
    return table


def type_name(*parts: str) -> str:
    """Return the name of a record, from the words of where it occurs."""
    words = [word for part in parts for word in _NOT_ASCII.sub("_", part[:MAX_CHARS]).split("_") if word]
    text = "".join(word[:1].upper() + word[1:] for word in words)[:MAX_CHARS]
    return f"T{text}" if not text or text[0].isdigit() or iskeyword(text) else text


def unused_name(name: str, used: set[str], counts: dict[str, int]) -> str:
    """Return the name, numbered if it is used already, and add it to those in use."""
    free = name
    while free in used:
        # Counted per name, so that thousands of equal names take linear time.
        counts[name] = counts.get(name, 1) + 1
        free = f"{name}_{counts[name]}"
    used.add(free)
    return free
