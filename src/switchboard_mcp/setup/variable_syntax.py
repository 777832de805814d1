"""Translates the variables of hosts to the forms that Switchboard supports: `${VAR}` and `${VAR:-default}`.

Raises `UntranslatableError` for a reference without an equivalent, such as a prompt for input.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from switchboard_mcp.setup.hosts import Syntax

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_BRACES = re.compile(rf"\$\{{{_NAME}(?::-[^}}]*)?\}}")
_PREFIXED = re.compile(r"\$\{([A-Za-z/]+)(?::([^}]*))?\}")
_DOLLAR = re.compile(rf"\$\{{({_NAME})((?::-[^}}]*)?)\}}|\$({_NAME})")
_PERCENT = re.compile(rf"%({_NAME})%")
_OPENCODE = re.compile(r"\{(env|file):([^}]*)\}")
_SECRET = re.compile(r"\$\{\{\s*([^}]*?)\s*\}\}")
_REFERENCE = re.compile(rf"\$\{{({_NAME})(?::-[^}}]*)?\}}")


class UntranslatableError(Exception):
    """A reference has no equivalent; the message is the reason."""


def translate(text: str, syntax: Syntax, fields: Mapping[str, str]) -> str:
    """Translate a string of a host to our own syntax."""
    if syntax != "opencode" and "$" not in text and "%" not in text:
        return text
    return _TRANSLATORS[syntax](text, fields)


def referenced_variables(text: str) -> list[str]:
    """Return the names of the variables in a string."""
    return [match[1] for match in _REFERENCE.finditer(text)]


def _braces(text: str, fields: Mapping[str, str]) -> str:
    return text


def _none(text: str, fields: Mapping[str, str]) -> str:
    if match := _BRACES.search(text):
        raise UntranslatableError(f"`{match[0]}` is plain text there, but would be expanded here")
    return text


def _prefixed(text: str, fields: Mapping[str, str]) -> str:
    def translate(match: re.Match[str]) -> str:
        kind, rest = match[1], match[2]
        if kind == "env" and rest:
            return f"${{{rest}}}"
        if kind == "userHome":
            return "${HOME}" if fields.get("platform") != "win32" else "${USERPROFILE}"
        if kind in ("workspaceFolder", "workspaceRoot") and not rest:
            return fields["workspace"]
        if kind == "workspaceFolderBasename" and "$" not in fields["workspace"]:
            return os.path.basename(fields["workspace"])
        if kind in ("pathSeparator", "/"):
            return os.sep
        if rest is None and re.fullmatch(_NAME, kind) and kind != "workspaceFolderBasename":
            return match[0]
        what = "asks the user for a value" if kind in ("input", "promptString") else "only works in this host"
        raise UntranslatableError(f"`{match[0] if rest is None else f'${{{kind}:…}}'}` {what}")

    return _PREFIXED.sub(translate, text)


def _dollar(text: str, fields: Mapping[str, str]) -> str:
    text = _DOLLAR.sub(lambda match: f"${{{match[1] or match[3]}{match[2] or ''}}}", text)
    if fields.get("platform") == "win32":
        text = _PERCENT.sub(lambda match: f"${{{match[1]}}}", text)
    return text


def _opencode(text: str, fields: Mapping[str, str]) -> str:
    text = _none(text, fields)

    def translate(match: re.Match[str]) -> str:
        if match[1] == "file":
            raise UntranslatableError("`{file:…}` is read from a file")
        return f"${{{match[2].strip()}}}"

    return _OPENCODE.sub(translate, text)


def _continue(text: str, fields: Mapping[str, str]) -> str:
    def translate(match: re.Match[str]) -> str:
        kind, _, name = match[1].partition(".")
        if kind != "secrets" or not re.fullmatch(_NAME, name):
            raise UntranslatableError(f"`${{{{ {kind}.… }}}}` only works in this host")
        return f"${{{name}}}"

    return _SECRET.sub(translate, text)


_TRANSLATORS: dict[Syntax, Callable[[str, Mapping[str, str]], str]] = {
    "braces": _braces,
    "prefixed": _prefixed,
    "dollar": _dollar,
    "opencode": _opencode,
    "continue": _continue,
    "none": _none,
}
