"""Bearer tokens: one per start, in a file only its owner can read, and named ones from the config.

Tokens are compared as digests, all of them and in constant time, so the time a rejection takes reveals nothing. Not
aware of HTTP beyond the value of the header.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest

from switchboard_mcp.config.sections import HASHED, Token, token_text
from switchboard_mcp.config.variables import fill
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.observability.log import Log
from switchboard_mcp.system.atomic_write import write_atomically, write_gitignore
from switchboard_mcp.system.plain_files import read_plain
from switchboard_mcp.system.write_access import other_writers

FOLDER = ".switchboard"
FILE = "auth_token"
# 256 bits.
TOKEN_BYTES = 32
# A shorter token is a password and can be guessed.
MIN_TOKEN_CHARS = 16
MAX_FILE_BYTES = 4096


class TokenTable:
    """Maps token digests to principals. The token of this start has the empty principal."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Create the table from tokens by principal."""
        self._digests = [(_stored_digest(token), name) for name, token in tokens.items()]

    def digest_of(self, principal: str) -> bytes:
        """Return the digest of a principal's token; empty if it has none."""
        return next((digest for digest, name in self._digests if name == principal), b"")

    def keep(self, names: Iterable[str]) -> set[str]:
        """Keep the token of this start and those of these names; return the names of the others, which are revoked."""
        kept = {"", *names}
        revoked = {name for _, name in self._digests} - kept
        self._digests = [(digest, name) for digest, name in self._digests if name in kept]
        return revoked

    def replace(self, tokens: Mapping[str, str]) -> set[str]:
        """Replace the named tokens; return the names of those that are not valid any more."""
        before = self._digests
        self._digests = [pair for pair in before if not pair[1]]
        self._digests += [(_stored_digest(token), name) for name, token in tokens.items()]
        return {name for digest, name in before if (digest, name) not in self._digests}

    def principal(self, token: bytes) -> str | None:
        """Return the principal of a token, or None if the token is unknown."""
        digest = _digest(token)
        principal = None
        for stored, name in self._digests:
            if compare_digest(stored, digest):
                principal = name
        return principal


def bearer(header: bytes) -> bytes | None:
    """Return the token of an `Authorization` header, or None if it uses another scheme."""
    scheme, _, token = header.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def _stored_digest(token: str) -> bytes:
    return bytes.fromhex(token.removeprefix(HASHED)) if token.startswith(HASHED) else _digest(token.encode())


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


def named_tokens(configured: Mapping[str, str | Token], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens of the config with their variables expanded. Raise if one is unusable."""
    tokens: dict[str, str] = {}
    for name, setting in configured.items():
        token = fill(token_text(setting), environ)
        if isinstance(token, list):
            message = f"http.tokens.{name}: not set in the environment: {', '.join(token)}."
            raise refused("variable_missing", message)
        if not name or len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
            message = f"http.tokens.{name}: expected at least {MIN_TOKEN_CHARS} printable ASCII characters."
            raise refused("config_invalid", message)
        if token.startswith(HASHED) and not re.fullmatch(r"[0-9a-f]{64}", token.removeprefix(HASHED)):
            message = f"http.tokens.{name}: expected {HASHED} and 64 hexadecimal digits."
            raise refused("config_invalid", message, hint=f"Create a new one: switchboard token new {name}")
        if token in tokens.values():
            message = f"http.tokens.{name}: duplicates another token. Each entry needs its own."
            raise refused("config_invalid", message)
        tokens[name] = token
    return tokens


def private_folder(workspace: str, log: Log) -> str:
    """Return the folder for secrets, creating it if needed.

    A folder that others can read is closed to them. Raise if another user owns it or could have written to it.
    """
    path = os.path.join(workspace, FOLDER)
    try:
        os.mkdir(path, 0o700)
        write_gitignore(path)
    except FileExistsError:
        pass
    except OSError as problem:
        raise _loose_permissions(f"Cannot create {path}: {problem.strerror}.") from None
    status = _require_own(path, stat.S_IFDIR, f"chmod 700 {path}")
    if others := other_writers(path, status, entries=True):
        raise _loose_permissions(f"{path} holds a secret and {others}.", f"chmod 700 {path}")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)
        log.warning("folder.restricted", folder=path, mode=f"{stat.S_IMODE(status.st_mode):04o}", now="0700")
    return path


def write_token(folder: str) -> str:
    """Generate a token and write it to its file, replacing the previous one."""
    path = os.path.join(folder, FILE)
    if os.path.lexists(path):
        status = _require_own(path, stat.S_IFREG, f"rm {path}")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise _loose_permissions(
                f"{path} holds a secret and is open to others (mode {mode:04o}).", f"rm {path}"
            )
    token = secrets.token_urlsafe(TOKEN_BYTES)
    write_atomically(path, token.encode() + b"\n")
    return token


def remove_token(folder: str, table: TokenTable) -> None:
    """Remove the file of the token of this start, unless another server has written it meanwhile."""
    with suppress(OSError, ValueError):
        if table.principal(read_token(folder).encode()) == "":
            os.unlink(os.path.join(folder, FILE))


def read_token(folder: str) -> str:
    """Return the token of the server that serves this workspace."""
    return read_plain(os.path.join(folder, FILE), MAX_FILE_BYTES).decode("ascii").strip()


def _require_own(path: str, kind: int, remedy: str) -> os.stat_result:
    """Return the status of a path. Raise if it is a link, or could have been planted by another user."""
    status = os.lstat(path)
    if stat.S_IFMT(status.st_mode) != kind:
        what = "a folder" if kind == stat.S_IFDIR else "a regular file"
        raise _loose_permissions(
            f"{path} holds a secret and must be {what}, not a link or special file.", remedy
        )
    if status.st_uid != os.geteuid():
        raise _loose_permissions(f"{path} holds a secret and belongs to another user.", remedy)
    return status


def _loose_permissions(message: str, remedy: str = "") -> SwitchboardError:
    hint = f"Run: {remedy}" if remedy else ""
    return refused("loose_permissions", message, hint=hint)
