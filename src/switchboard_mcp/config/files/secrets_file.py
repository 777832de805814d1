"""Reads and writes `.switchboard/secrets.env`, the values of variables that entries of children reference.

The values fill `${VAR}` in the entries that name them, and reach nothing else: they are never put into the environment
of Switchboard or of a child. A variable of the environment takes precedence. Instead of a value, the file may have a
reference to the system keyring (`keyring_store`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping

from switchboard_mcp.config.models import ConfigWarning

SECRETS_FILE = os.path.join(".switchboard", "secrets.env")
MAX_BYTES = 1024 * 1024
# The identifier is random: nobody can name a secret of another workspace, or of another program.
KEYRING_REFERENCE = r"@keyring:([0-9a-f]{32})"
_LINE = re.compile(
    r"""^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(?:'((?:[^']|'\\'')*)'|"([^"\n]*)"|([^'"\s#][^\n]*?)?)[ \t]*\r?$""",
    re.MULTILINE,
)


def read_secrets(folder: str, warnings: list[ConfigWarning]) -> dict[str, str]:
    """Return the variables in the secrets file of a workspace.

    A file that others can read or write, or that another user owns, is ignored with a warning.
    """
    path = os.path.join(folder, SECRETS_FILE)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        warnings.append(_ignored(path, f"cannot be opened ({problem.strerror}). Make it a regular file."))
        return {}
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            warnings.append(_ignored(path, "is not a regular file of at most 1 MiB."))
            return {}
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            reason = f"must be readable only by you. Run `chmod 600 {path}` if it is yours."
            warnings.append(_ignored(path, reason))
            return {}
        return parse_secrets(os.read(descriptor, MAX_BYTES))
    finally:
        os.close(descriptor)


def _ignored(path: str, reason: str) -> ConfigWarning:
    return ConfigWarning(path, "", f"{reason} Its variables are not used.")


def parse_secrets(data: bytes) -> dict[str, str]:
    """Return the variables in the content of a secrets file. Lines in another form are skipped."""
    secrets: dict[str, str] = {}
    for match in _LINE.finditer(data.decode("utf-8", "replace").replace("\r\n", "\n")):
        name, quoted, double, plain = match.groups()
        secrets[name] = quoted.replace("'\\''", "'") if quoted is not None else double or plain or ""
    return secrets


def is_keyring_reference(value: str) -> bool:
    """Return True if the value of a variable is in the system keyring, under the identifier that is named here."""
    return re.fullmatch(KEYRING_REFERENCE, value) is not None


def without_secret(data: bytes, name: str) -> bytes:
    """Return the content of a secrets file without one variable. All other lines stay as they are."""
    text = data.decode("utf-8", "surrogateescape")
    kept, end = [], 0
    for match in _LINE.finditer(text):
        if match[1] == name:
            kept.append(text[end : match.start()])
            end = match.end() + (text[match.end() : match.end() + 1] == "\n")
    return "".join([*kept, text[end:]]).encode("utf-8", "surrogateescape")


def append_secrets(data: bytes, values: Mapping[str, str]) -> bytes:
    """Return the content of a secrets file with more variables appended."""
    stored = parse_secrets(data)
    fresh = {name: value.replace("'", "'\\''") for name, value in values.items() if stored.get(name) != value}
    if data and not data.endswith(b"\n"):
        data += b"\n"
    return data + "".join(f"{name}='{value}'\n" for name, value in sorted(fresh.items())).encode()
