"""Authentication and authorization of the dashboard: rights of tokens, one-time links, and browser cookies.

The token of this start has all rights. A named token has the right that its entry in `http.tokens` grants, by default
none, since most tokens belong to agents. A browser presents a token or the code of the link once and gets a cookie
that scripts cannot read and other sites cannot send, and a key that only pages of this address can read: browsers send
a cookie to every port of a host, and another port may belong to anybody. A request needs both. A link is created at the
start, and for every `switchboard dashboard`; it logs in with the right of the token that requested it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct

from switchboard_mcp.config.sections import Token
from switchboard_mcp.server.http.auth import TOKEN_BYTES, TokenTable, bearer

READ, ACT, ADMIN = "read", "act", "admin"
# Each includes those before it. `act` uses what is configured; `admin` changes what is configured or approved.
SCOPES = (READ, ACT, ADMIN)
# A link in a terminal's scrollback must not open anything the next day.
LINK_TTL_S = 3600.0
# A browser unused for this long has to log in again.
COOKIE_TTL_S = 12 * 3600.0
MAX_COOKIES = 64
# Unused links; the oldest one is dropped.
MAX_LINKS = 16
# Guessing 256 bits is hopeless; this keeps a broken script from filling the log. Only invalid logins count, and only
# they are limited: a valid token always logs in.
MAX_FAILED_LOGINS, FAILED_LOGINS_WINDOW_S = 20, 60.0
MAX_ADDRESSES = 1_000

Headers = Mapping[bytes, bytes]


class Viewer(Struct, frozen=True):
    """An authenticated viewer: the name of its token and its right."""

    principal: str
    right: str
    by_cookie: bool = False

    @property
    def may_act(self) -> bool:
        """True if the viewer may do more than look."""
        return self.has(ACT)

    def has(self, scope: str) -> bool:
        """Return True if the right of the viewer includes a scope."""
        return SCOPES.index(self.right) >= SCOPES.index(scope)


class LoginLink(Struct, frozen=True):
    """A one-time link. It expires `LINK_TTL_S` after it was created."""

    code: str
    created: float


class _Link(Struct, frozen=True):
    viewer: Viewer
    expires: float


class NewLogin(Struct, frozen=True):
    """The login of a browser: the value of the cookie's header, and the key for its page."""

    viewer: Viewer
    cookie: bytes
    page_key: str


class _Login(Struct):
    viewer: Viewer
    token: bytes  # the digest of the token that it stands for
    page_key: bytes  # its digest
    last_used: float


def rights(tokens: Mapping[str, str | Token]) -> dict[str, str]:
    """Return the right of each token by principal. The token of this start has the empty principal."""
    named = {name: token.dashboard for name, token in tokens.items() if isinstance(token, Token)}
    return {"": ADMIN, **{name: right for name, right in named.items() if right}}


class DashboardAccess:
    """Authenticates requests to the dashboard and manages logins."""

    def __init__(
        self,
        tokens: TokenTable,
        rights: Callable[[], Mapping[str, str]],
        link: LoginLink,
        port: int,
        now: Callable[[], float],
    ) -> None:
        self._tokens = tokens
        self._rights = rights
        self._links: dict[bytes, _Link] = {}  # by digest of the code, oldest first
        if link.code:
            self._links[_digest(link.code.encode())] = _Link(Viewer("", ADMIN), link.created + LINK_TTL_S)
        self._cookie = b"switchboard_%d" % port  # a cookie is sent to every port of a host
        self._logins: dict[bytes, _Login] = {}
        self._now = now
        self._failed_logins: dict[str, list[float]] = {}  # times by client address, oldest address first

    def viewer(self, headers: Headers, page_key: bytes = b"") -> Viewer | None:
        """Return the viewer of a request, or None if it has no valid login or its token has no right.

        `page_key` is what the page of a browser sends with its cookie.
        """
        authorization = headers.get(b"authorization")
        if authorization is not None:
            token = bearer(authorization)
            return self._viewer_by_token(token) if token is not None else None
        login = self._logins.get(_digest(self._read_cookie(headers)))
        if login is None or self._now() - login.last_used > COOKIE_TTL_S:
            return None
        if not compare_digest(login.page_key, _digest(page_key)):
            return None
        principal = login.viewer.principal
        right = self._right_of(principal)
        if right is None or login.token != self._tokens.digest_of(principal):  # revoked, or made anew
            return None
        login.last_used = self._now()
        return Viewer(principal, right, True)

    def log_in(self, token: str, code: str) -> NewLogin | None:
        """Log in with a token or a code. Return the login, or None if it is invalid."""
        viewer = self._viewer_by_token(token.encode()) if token else self._viewer_by_code(code)
        if viewer is None:
            return None
        key, page_key = secrets.token_urlsafe(TOKEN_BYTES), secrets.token_urlsafe(TOKEN_BYTES)
        while len(self._logins) >= MAX_COOKIES:
            del self._logins[min(self._logins, key=lambda digest: self._logins[digest].last_used)]
        self._logins[_digest(key.encode())] = _Login(
            Viewer(viewer.principal, viewer.right, True),
            self._tokens.digest_of(viewer.principal),
            _digest(page_key.encode()),
            self._now(),
        )
        return NewLogin(viewer, self._set_cookie(key.encode(), int(COOKIE_TTL_S)), page_key)

    def create_link(self, viewer: Viewer) -> str:
        """Return the code of a new link that logs one browser in with the right of this viewer."""
        while len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        code = secrets.token_urlsafe(TOKEN_BYTES)
        link = _Link(Viewer(viewer.principal, viewer.right), self._now() + LINK_TTL_S)
        self._links[_digest(code.encode())] = link
        return code

    def record_failure(self, address: str) -> bool:
        """Count an invalid login of a client address. Return True if it has had too many."""
        now = self._now()
        times = [at for at in self._failed_logins.pop(address, ()) if now - at < FAILED_LOGINS_WINDOW_S]
        is_limited = len(times) >= MAX_FAILED_LOGINS
        if not is_limited:
            times.append(now)
        while len(self._failed_logins) >= MAX_ADDRESSES:
            del self._failed_logins[next(iter(self._failed_logins))]
        self._failed_logins[address] = times
        return is_limited

    def log_out(self, headers: Headers) -> bytes:
        """End the login of a browser. Return the header value that removes its cookie."""
        self._logins.pop(_digest(self._read_cookie(headers)), None)
        return self._set_cookie(b"", 0)

    def _viewer_by_token(self, token: bytes) -> Viewer | None:
        principal = self._tokens.principal(token)
        right = self._right_of(principal) if principal is not None else None
        return Viewer(principal, right) if principal is not None and right is not None else None

    def _right_of(self, principal: str) -> str | None:
        """Return the right of a principal now: a reload may change it."""
        return self._rights().get(principal) if self._tokens.digest_of(principal) else None

    def _viewer_by_code(self, code: str) -> Viewer | None:
        """Return the viewer for the code of a link, which is valid once."""
        # Found by its digest, so the time of the lookup reveals nothing of the code.
        link = self._links.pop(_digest(code.encode()), None)
        if link is None or self._now() > link.expires:
            return None
        right = self._right_of(link.viewer.principal)
        return Viewer(link.viewer.principal, right) if right is not None else None

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
