"""OAuth for requests to remote children.

A valid token is simply added to every request. `oauth_sdk` obtains and renews tokens and is loaded only for that. It
runs in a task of its own: a call that is cancelled meanwhile must not interrupt it, since the authorization server may
have replaced the refresh token already. A login needs a person; while serving a host there is none, so the request
fails and says which command to run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import httpx2
from msgspec import structs

from switchboard_mcp.config.models import OAuthClient
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.system.installation import install_hint
from switchboard_mcp.transport.http.client import HttpClient, ServerAuth
from switchboard_mcp.transport.http.http_errors import (
    BAD_REQUEST,
    FORBIDDEN,
    UNAUTHORIZED,
    needs_scope,
    read_error_body,
    response_failure,
    scope_failure,
)
from switchboard_mcp.transport.http.remote_base import FirstRequest, LoginPrompt, RemoteServer
from switchboard_mcp.transport.http.token_store import LoginFile, StoredLogin

if TYPE_CHECKING:
    from switchboard_mcp.transport.http.oauth_sdk import TokenClient

# Authorizations that one request may cause, so that a server that rejects every token is not asked for ever.
MAX_AUTHORIZATIONS = 3
# Time to store a token that is being renewed when the transport closes, within the two seconds that hosts wait.
FINISH_TIMEOUT_S = 1.0
MAX_CHALLENGE_CHARS = 4096


class OAuth(ServerAuth):
    """Authorizes requests with OAuth. `register` is called with every token, for it to be redacted.

    `file` stores the login. It is None with client credentials, which can get a new token at any time.
    """

    def __init__(
        self,
        server: RemoteServer,
        file: LoginFile | None,
        register: Callable[[str], None],
        client: OAuthClient | None = None,
        prompt: LoginPrompt | None = None,
    ) -> None:
        self._server = server
        self._file = file
        self._register = register
        self._client = client or OAuthClient()
        self._prompt = prompt
        self._login: StoredLogin | None = None
        self._loaded = False
        self._renewal: asyncio.Task[str] | None = None
        # A stored login can be renewed once; with a person or a client of its own, authorization can be repeated.
        self._attempts = 1 if file is not None and prompt is None else MAX_AUTHORIZATIONS

    @property
    def login(self) -> StoredLogin | None:
        """The login as it was last read or stored, or None."""
        if not self._loaded:
            self._reload()
        return self._login

    @property
    def path(self) -> str:
        """The file that stores the login."""
        return self._file.path if self._file is not None else ""

    async def authorize(self, requests: Sequence[FirstRequest]) -> None:
        """Send the first request that the server knows. Raises if it is not accepted after a login either."""
        client = HttpClient(self._server, self)
        before = self.login
        problem: SwitchboardError | None = None
        try:
            for request in requests:
                async with client.stream(
                    request.method, self._server.url, request.headers, request.body
                ) as response:
                    rejected = response.status_code in (UNAUTHORIZED, FORBIDDEN)
                    if response.is_success or (self.login is not before and not rejected):
                        return
                    error = await read_error_body(response)
                    problem = SwitchboardError(response_failure(self._server, response, error))
                    if rejected or response.status_code != BAD_REQUEST:
                        raise problem
            assert problem is not None
            raise problem
        finally:
            await client.aclose()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token to the request; if it is rejected, get a new one."""
        token = await self._first_token()
        for _ in range(self._attempts):
            if token:
                request.headers["authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code != UNAUTHORIZED and not needs_scope(response):
                return
            renewed = await self._renew(token, response)
            if not renewed:
                return
            token = renewed
        request.headers["authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == UNAUTHORIZED and self._file is not None and self._prompt is None:
            async with self._file.locked(self._server):
                await self._note_challenge(self._reload() or StoredLogin(), response)

    async def finish(self) -> None:
        """Wait a short time until a token that is being renewed is stored."""
        if self._renewal is not None and self._prompt is None:
            await asyncio.wait([self._renewal], timeout=FINISH_TIMEOUT_S)

    async def _first_token(self) -> str:
        """Return the token to begin with, or nothing to wait for the server's challenge."""
        login = self.login
        if login is None:
            return ""
        fresh = login.is_fresh(time.time())
        if self._prompt is not None:
            # A request has shown that this login is not enough: there is no need to show it again.
            return (
                await self._renew(login.access_token, None) if login.challenge else login.access_token * fresh
            )
        if not fresh and login.refresh_token:
            return await self._renew(login.access_token, None)
        return login.access_token

    async def _renew(self, rejected: str, response: httpx2.Response | None) -> str:
        """Return a token other than the rejected one. Requests that need one at the same time share it.

        Returns nothing if there is no login to renew.
        """
        login = self.login
        if response is not None and login is not None and login.access_token not in ("", rejected):
            return login.access_token  # renewed while this request was on its way
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._obtain(rejected, response))
            self._renewal.add_done_callback(self._renewed)
        return await asyncio.shield(self._renewal)

    def _renewed(self, task: asyncio.Task[str]) -> None:
        self._renewal = None
        if not task.cancelled():
            task.exception()  # those who waited have it, if there is still anybody

    async def _obtain(self, rejected: str, response: httpx2.Response | None) -> str:
        if self._file is None or self._prompt is not None:
            tokens = await self._token_client()
            return await tokens.authorize(self._login or StoredLogin(), response, self._store)
        async with self._file.locked(self._server):
            login = self._reload()
            if login is not None and login.access_token not in ("", rejected) and login.is_fresh(time.time()):
                return login.access_token  # another process has renewed it, or the user has logged in again
            if response is not None and (needs_scope(response) or login is None or not login.refresh_token):
                await self._note_challenge(login or StoredLogin(), response)
            if response is not None and needs_scope(response):
                raise SwitchboardError(scope_failure(self._server, response))
            if login is None or not login.tokens:
                return ""
            if not login.refresh_token:
                raise SwitchboardError(self._login_required())
            return await (await self._token_client()).refresh(login, self._write)

    async def _token_client(self) -> TokenClient:
        try:
            # In a thread: the packages take a while to import.
            module = await asyncio.to_thread(import_module, "switchboard_mcp.transport.http.oauth_sdk")
        except ImportError as problem:
            raise SwitchboardError(
                self._server.failure(
                    "transport_unsupported",
                    f"requires a login, but the package {problem.name} is not installed",
                    hint=install_hint("oauth"),
                )
            ) from problem
        client: TokenClient = module.TokenClient(self._server, self._client, self._prompt)
        return client

    def _reload(self) -> StoredLogin | None:
        self._loaded = True
        if self._file is not None:
            self._set_login(self._file.read())
        return self._login

    def _set_login(self, login: StoredLogin | None) -> None:
        self._login = login
        for secret in (login.access_token, login.refresh_token) if login is not None else ():
            if secret:
                self._register(secret)

    async def _store(self, login: StoredLogin) -> None:
        if self._file is None:
            self._set_login(login)
            return
        # Not held while a person logs in, since running servers may have to renew the old tokens meanwhile.
        async with self._file.locked(self._server):
            await self._write(login)

    async def _write(self, login: StoredLogin) -> None:
        """Store new tokens, before anything uses them."""
        self._set_login(login)
        assert self._file is not None
        if self._prompt is not None or self._file.exists:  # else the user has logged out meanwhile
            await asyncio.to_thread(self._file.write, login)

    async def _note_challenge(self, login: StoredLogin, response: httpx2.Response) -> None:
        """Remember a challenge that only a person can answer, for the next `switchboard login`."""
        challenge = str(response.headers.get("www-authenticate", ""))[:MAX_CHALLENGE_CHARS]
        if self._file is not None and challenge.lower().startswith("bearer") and challenge != login.challenge:
            login = structs.replace(login, challenge=challenge)
            self._set_login(login)
            await asyncio.to_thread(self._file.write, login)

    def _login_required(self) -> Failure:
        return self._server.failure(
            "child_unauthorized", "requires a new login", hint=self._server.login_hint
        )
