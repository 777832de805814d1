"""Where the tokens of remote children are kept: one file a child, which only its user can read.

Owns the file and what stands in it. How tokens are got and renewed is no matter here (`oauth`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.system.atomic_write import write_atomically

# A token that ends while a request is on its way is of no use.
MARGIN_S = 30.0


class StoredLogin(Struct, rename="camel", kw_only=True):
    """What a login has brought. Tokens, client and the two documents about the server are as they came, in JSON."""

    access_token: str = ""
    expires_at: float = 0.0  # seconds since 1970; 0 where it was not said
    tokens: str = ""
    client: str = ""
    server: str = ""
    resource: str = ""

    def is_fresh(self, now: float) -> bool:
        """Whether the token can be used, as far as we know."""
        return bool(self.access_token) and (not self.expires_at or now < self.expires_at - MARGIN_S)


_decode = msgspec.json.Decoder(StoredLogin).decode


class LoginFile:
    """The file of one child's login."""

    def __init__(self, folder: str, child: str, url: str) -> None:
        self._folder = folder
        name = sha256(msgspec.json.encode([child, url])).hexdigest()[:32]
        self.path = os.path.join(folder, f"{name}.json")

    @property
    def exists(self) -> bool:
        """Whether a login is kept."""
        return os.path.lexists(self.path)

    def read(self) -> StoredLogin | None:
        """What is kept; nothing where there is no such file, or where others could have read or written it."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with open(fd, "rb") as file:
            about = os.fstat(fd)
            if about.st_mode & 0o077 or about.st_uid != os.geteuid():
                return None
            try:
                return _decode(file.read())
            except (msgspec.DecodeError, UnicodeDecodeError):
                return None

    def write(self, login: StoredLogin) -> None:
        """Keep it. Readers see the old file or the new one, never a part."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_atomically(self.path, msgspec.json.encode(login), sync=False)

    def remove(self) -> bool:
        """Keep it no longer; whether there was one."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return False
        return True


def logins_folder(environ: Mapping[str, str]) -> str:
    """Where this user's logins are; empty when there is no home."""
    base = environ.get("XDG_STATE_HOME") or (
        environ.get("HOME", "") and os.path.join(environ["HOME"], ".local", "state")
    )
    return os.path.join(base, "switchboard-mcp", "logins") if base else ""
