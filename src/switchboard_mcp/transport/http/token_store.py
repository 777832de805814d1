"""Stores the logins of remote children: one file per child, readable only by its user.

Whoever renews a token holds the lock of its file from reading the old one to storing the new one: an authorization
server may accept a refresh token only once. How tokens are obtained and renewed is up to `oauth`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.system.atomic_write import sync_folder, write_atomically
from switchboard_mcp.system.user_folders import state_folder
from switchboard_mcp.transport.http.remote_base import RemoteServer

# A token must not expire while a request is in flight.
EXPIRY_MARGIN_S = 30.0
# Longer than a process takes to renew a token, see `oauth_sdk.REQUEST_TIMEOUT_S`.
LOCK_TIMEOUT_S = 45.0
LOCK_POLL_S = 0.02


class StoredLogin(Struct, rename="camel", kw_only=True):
    """The result of a login. Tokens, client and both server documents are JSON as it was received.

    `challenge` is the `WWW-Authenticate` header that only a person can answer: there are no tokens yet, or they are
    good for too little. The next login answers it.
    """

    access_token: str = ""
    expires_at: float = 0.0  # seconds since 1970; 0 if unknown
    tokens: str = ""
    client: str = ""
    server: str = ""
    resource: str = ""
    challenge: str = ""

    @property
    def refresh_token(self) -> str:
        """The refresh token, or nothing."""
        try:
            return _decode_tokens(self.tokens).refresh_token or "" if self.tokens else ""
        except msgspec.DecodeError:
            return ""

    def is_fresh(self, now: float) -> bool:
        """Return True if the token has not expired as far as we know."""
        return bool(self.access_token) and (not self.expires_at or now < self.expires_at - self._margin_s)

    @property
    def _margin_s(self) -> float:
        """The time before its end from which the token is renewed: less for one that lives for a minute only."""
        try:
            lifetime_s = _decode_tokens(self.tokens).expires_in or 0.0 if self.tokens else 0.0
        except msgspec.DecodeError:
            lifetime_s = 0.0
        return min(EXPIRY_MARGIN_S, lifetime_s / 3) if lifetime_s > 0 else EXPIRY_MARGIN_S


class _Tokens(Struct):
    refresh_token: str | None = None
    expires_in: float | None = None


_decode = msgspec.json.Decoder(StoredLogin).decode
_decode_tokens = msgspec.json.Decoder(_Tokens).decode


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
        """Store the login atomically, on the disk: the token before may be worthless already."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_atomically(self.path, msgspec.json.encode(login))
        sync_folder(self._folder)

    @asynccontextmanager
    async def locked(self, server: RemoteServer) -> AsyncIterator[None]:
        """Hold the lock of this file, which ends with the process. Raises SwitchboardError if it stays taken."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        descriptor = os.open(
            f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            async with asyncio.timeout(LOCK_TIMEOUT_S):
                while not _try_lock(descriptor):  # noqa: ASYNC110 - a file lock has no event
                    await asyncio.sleep(LOCK_POLL_S)
        except TimeoutError:
            os.close(descriptor)
            what = f"cannot renew its login: another process holds {self.path}.lock"
            raise SwitchboardError(server.failure("child_unreachable", what, hint="Try again.")) from None
        except BaseException:
            os.close(descriptor)
            raise
        try:
            yield
        finally:
            os.close(descriptor)

    def remove(self) -> bool:
        """Delete the login; return False if there was none."""
        with suppress(OSError):
            os.unlink(f"{self.path}.lock")
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return False
        return True


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def logins_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of this user's logins; empty if there is no home folder."""
    return state_folder(environ, "logins")
