"""Who may look at the dashboard, and who may act: rights of tokens, the one-time link, and cookies for browsers.

The token of this start may do everything. Another has the right its entry in `http.tokens` gives; none where that says
nothing, since most tokens are agents'. A browser shows a token or the code of the link once and gets a cookie for it,
which no script can read and no other site can send. Knows nothing of what is shown.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct

from switchboard_mcp.config.sections import Token
from switchboard_mcp.server.http.auth import TOKEN_BYTES, TokenTable, bearer

READ, ADMIN = "read", "admin"
# A link in a terminal's scrollback must not open anything the next day.
LINK_TTL_S = 3600.0
# A browser that nobody has used for so long has to show a token again.
COOKIE_TTL_S = 12 * 3600.0
MAX_COOKIES = 64
# Guessing 256 bits is hopeless; this keeps a broken script from filling our time.
MAX_FAILED_LOGINS, FAILED_LOGINS_WINDOW_S = 20, 60.0

Headers = Mapping[bytes, bytes]


class Viewer(Struct, frozen=True):
    """Somebody who may look: the name of the token, and what it may."""

    principal: str
    right: str
    by_cookie: bool = False

    @property
    def may_act(self) -> bool:
        """Whether it may change anything."""
        return self.right == ADMIN


class _Login(Struct):
    viewer: Viewer
    last_used: float


def rights(tokens: Mapping[str, str | Token]) -> dict[str, str]:
    """What each token may, by its name; that of this start has none."""
    named = {name: token.dashboard for name, token in tokens.items() if isinstance(token, Token)}
    return {"": ADMIN, **{name: right for name, right in named.items() if right}}


class DashboardAccess:
    """See the module."""

    def __init__(
        self, tokens: TokenTable, allowed: Mapping[str, str], code: str, port: int, now: Callable[[], float]
    ) -> None:
        self._tokens = tokens
        self._rights = allowed
        self._code = sha256(code.encode()).digest() if code else b""
        self._code_expires = now() + LINK_TTL_S
        self._cookie = b"switchboard_%d" % port  # a cookie is sent to every port of a host
        self._logins: dict[bytes, _Login] = {}
        self._now = now
        self._failed_logins: list[float] = []

    def viewer(self, headers: Headers) -> Viewer | None:
        """Who asks; None where it is nobody who may look. A token that may not is nobody here too."""
        authorization = headers.get(b"authorization")
        if authorization is not None:
            token = bearer(authorization)
            return self._viewer_by_token(token) if token is not None else None
        login = self._logins.get(_digest(self._read_cookie(headers)))
        if login is None or self._now() - login.last_used > COOKIE_TTL_S:
            return None
        login.last_used = self._now()
        return login.viewer

    def log_in(self, token: str, code: str) -> tuple[Viewer, bytes] | None:
        """The viewer, and the cookie to set; None where neither is right, or there were too many wrong ones."""
        if self._is_rate_limited():
            return None
        viewer = self._viewer_by_token(token.encode()) if token else self._viewer_by_code(code)
        if viewer is None:
            self._failed_logins.append(self._now())
            return None
        key = secrets.token_urlsafe(TOKEN_BYTES)
        while len(self._logins) >= MAX_COOKIES:
            del self._logins[min(self._logins, key=lambda known: self._logins[known].last_used)]
        self._logins[_digest(key.encode())] = _Login(
            Viewer(viewer.principal, viewer.right, True), self._now()
        )
        return viewer, self._set_cookie(key.encode(), int(COOKIE_TTL_S))

    def log_out(self, headers: Headers) -> bytes:
        """Forget a browser; the cookie that takes its own away."""
        self._logins.pop(_digest(self._read_cookie(headers)), None)
        return self._set_cookie(b"", 0)

    def _viewer_by_token(self, token: bytes) -> Viewer | None:
        principal = self._tokens.principal(token)
        right = self._rights.get(principal) if principal is not None else None
        return Viewer(principal, right) if principal is not None and right is not None else None

    def _viewer_by_code(self, code: str) -> Viewer | None:
        """The code of the link is good once."""
        digest, expires = self._code, self._code_expires
        if not digest or not code or self._now() > expires:
            return None
        if not compare_digest(digest, sha256(code.encode()).digest()):
            return None
        self._code = b""
        return Viewer("", ADMIN)

    def _is_rate_limited(self) -> bool:
        self._failed_logins = [at for at in self._failed_logins if self._now() - at < FAILED_LOGINS_WINDOW_S]
        return len(self._failed_logins) >= MAX_FAILED_LOGINS

    def _read_cookie(self, headers: Headers) -> bytes:
        for part in headers.get(b"cookie", b"").split(b";"):
            name, _, value = part.strip().partition(b"=")
            if name == self._cookie:
                return value
        return b""

    def _set_cookie(self, value: bytes, seconds: int) -> bytes:
        return b"%b=%b; Path=/; HttpOnly; SameSite=Strict; Max-Age=%d" % (self._cookie, value, seconds)


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()
