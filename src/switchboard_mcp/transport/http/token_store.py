"""Stores the logins of remote children: one file per child, readable only by its user.

How tokens are obtained and refreshed is up to `oauth`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.user_folders import state_folder

# A token must not expire while a request is in flight.
EXPIRY_MARGIN_S = 30.0


class StoredLogin(Struct, rename="camel", kw_only=True):
    """The result of a login. Tokens, client and both server documents are JSON as it was received."""

    access_token: str = ""
    expires_at: float = 0.0  # seconds since 1970; 0 if unknown
    tokens: str = ""
    client: str = ""
    server: str = ""
    resource: str = ""

    def is_fresh(self, now: float) -> bool:
        """Return True if the token has not expired as far as we know."""
        return bool(self.access_token) and (not self.expires_at or now < self.expires_at - EXPIRY_MARGIN_S)


_decode = msgspec.json.Decoder(StoredLogin).decode


class LoginFile:
    """The file of one child's login."""

    def __init__(self, folder: str, child: str, url: str) -> None:
        self._folder = folder
        name = sha256(msgspec.json.encode([child, url])).hexdigest()[:32]
        self.path = os.path.join(folder, f"{name}.json")

    @property
    def exists(self) -> bool:
        """True if there is a stored login."""
        return os.path.lexists(self.path)

    def read(self) -> StoredLogin | None:
        """Return the stored login, or None if there is none or other users could have read or written it."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if status.st_mode & 0o077 or status.st_uid != os.geteuid():
                return None
            try:
                return _decode(file.read())
            except (msgspec.DecodeError, UnicodeDecodeError):
                return None

    def write(self, login: StoredLogin) -> None:
        """Store the login atomically."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_atomically(self.path, msgspec.json.encode(login), sync=False)

    def remove(self) -> bool:
        """Delete the login; return False if there was none."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return False
        return True


def logins_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of this user's logins; empty if there is no home folder."""
    return state_folder(environ, "logins")
