"""OAuth for requests to remote children.

A valid token is simply added to every request. Everything else, from discovering the authorization server to
refreshing a token, is done by the official SDK, which is loaded only then. A login needs a person; while serving a
host there is none, so the request fails and says which command to run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.system.installation import install_hint
from switchboard_mcp.transport.http.client import HttpClient
from switchboard_mcp.transport.http.http_errors import read_error_body, response_failure
from switchboard_mcp.transport.http.remote_base import LoginPrompt, RemoteServer
from switchboard_mcp.transport.http.token_store import LoginFile, StoredLogin

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

UNAUTHORIZED = 401
LONG_AGO = 1.0
# The redirect URI when nobody is there to log in: part of the registration, never requested.
PLACEHOLDER_REDIRECT_URI = "http://127.0.0.1/callback"


class RegisteredClient(Struct, frozen=True):
    """A client registered with the authorization server beforehand."""

    id: str = ""
    secret: str = ""


class OAuth(httpx2.Auth):
    """Authorizes requests with OAuth. `register` is called with every token, for it to be redacted."""

    def __init__(
        self,
        server: RemoteServer,
        file: LoginFile,
        register: Callable[[str], None],
        client: RegisteredClient | None = None,
        prompt: LoginPrompt | None = None,
    ) -> None:
        self._server = server
        self._file = file
        self._register = register
        self._client = client or RegisteredClient()
        self._prompt = prompt
        self._login: StoredLogin | None = None
        self._loaded = False
        self._provider: OAuthClientProvider | None = None

    @property
    def login(self) -> StoredLogin | None:
        """The stored login, or None."""
        if not self._loaded:
            self._loaded = True
            self._set_login(self._file.read())
        return self._login

    async def authorize(self, method: str, headers: dict[str, str], body: bytes | None) -> None:
        """Send a request for which the server requires a login. Raises if it is not accepted after that either."""
        client = HttpClient(self._server, self)
        try:
            async with client.stream(method, self._server.url, headers, body) as response:
                if not response.is_success:
                    error = await read_error_body(response)
                    raise SwitchboardError(response_failure(self._server, response, error))
        finally:
            await client.aclose()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token to the request; if it is rejected, get a new one."""
        login = self.login
        token = login.access_token if login is not None and login.is_fresh(time.time()) else ""
        if token:
            request.headers["authorization"] = f"Bearer {token}"
        if token or login is None:
            response = yield request
            if response.status_code != UNAUTHORIZED or (login is None and self._prompt is None):
                return
        # The SDK's own flow. Its errors become a failure that says what to do.
        flow = self._refresh_provider(token).async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            return
        except SwitchboardError:
            raise
        except Exception as problem:  # the SDK has no common base for what can go wrong here
            raise SwitchboardError(self._login_required(str(problem))) from problem
        finally:
            await flow.aclose()

    def _refresh_provider(self, rejected_token: str) -> OAuthClientProvider:
        provider = self._provider = self._provider or self._create_provider()
        held = provider.context.current_tokens
        if rejected_token and (held is None or held.access_token == rejected_token):
            provider.context.token_expiry_time = (
                LONG_AGO  # the server rejected it, whatever its expiry says: refresh it
            )
        return provider

    def _create_provider(self) -> OAuthClientProvider:
        try:
            from mcp.client.auth import OAuthClientProvider
            from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
        except ImportError as problem:
            raise SwitchboardError(
                self._server.failure(
                    "transport_unsupported",
                    f"requires a login, but the package {problem.name} is not installed",
                    hint=install_hint("oauth"),
                )
            ) from problem
        logging.getLogger("mcp.client.auth").setLevel(
            logging.CRITICAL + 1
        )  # its errors are reported as failures
        redirect = self._prompt.redirect_uri if self._prompt is not None else PLACEHOLDER_REDIRECT_URI
        provider = OAuthClientProvider(
            self._server.url,
            OAuthClientMetadata.model_validate({"client_name": "Switchboard", "redirect_uris": [redirect]}),
            _Storage(self, redirect),
            self._open_url,
            self._wait_for_callback,
        )
        login = self.login
        if login is not None:
            context = provider.context
            context.token_expiry_time = login.expires_at or None
            context.oauth_metadata = _parse(OAuthMetadata, login.server)
            context.protected_resource_metadata = _parse(ProtectedResourceMetadata, login.resource)
            if context.protected_resource_metadata is not None:
                context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])
        return provider

    async def _open_url(self, url: str) -> None:
        if self._prompt is None:
            raise SwitchboardError(self._login_required())
        await self._prompt.open_url(url)

    async def _wait_for_callback(self) -> Any:
        from mcp.shared.auth import AuthorizationCodeResult

        assert self._prompt is not None
        return AuthorizationCodeResult.model_validate(await self._prompt.wait_for_callback())

    def _login_required(self, detail: str = "") -> Failure:
        return self._server.failure(
            "child_unauthorized", "requires a new login", detail=detail, hint=self._server.login_hint
        )

    def _set_login(self, login: StoredLogin | None) -> None:
        self._login = login
        if login is not None and login.tokens:
            self._register(login.access_token)
            refresh = _get_text(login.tokens, "refresh_token")
            if refresh:
                self._register(refresh)

    def store(
        self, *, tokens: OAuthToken | None = None, client: OAuthClientInformationFull | None = None
    ) -> None:
        """Store tokens or client information received by the SDK."""
        login = self.login or StoredLogin()
        context = self._provider.context if self._provider is not None else None
        if client is not None:
            login.client = client.model_dump_json(exclude_none=True)
        if tokens is not None:
            login.access_token = tokens.access_token
            login.expires_at = time.time() + tokens.expires_in if tokens.expires_in else 0.0
            login.tokens = tokens.model_dump_json(exclude_none=True)
        if context is not None and context.oauth_metadata is not None:
            login.server = context.oauth_metadata.model_dump_json(exclude_none=True)
        if context is not None and context.protected_resource_metadata is not None:
            login.resource = context.protected_resource_metadata.model_dump_json(exclude_none=True)
        self._set_login(login)
        if login.tokens and (
            self._prompt is not None or self._file.exists
        ):  # else the user has logged out meanwhile
            self._file.write(login)

    @property
    def path(self) -> str:
        """The file that stores the login."""
        return self._file.path

    @property
    def client(self) -> RegisteredClient:
        """The client that was registered beforehand."""
        return self._client

    @property
    def forces_new_login(self) -> bool:
        """True if an earlier registration cannot be used, since it has a different redirect URI."""
        return self._prompt is not None


class _Storage:
    """Connects the SDK's token storage to our file."""

    def __init__(self, owner: OAuth, redirect: str) -> None:
        self._owner = owner
        self._redirect = redirect

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        login = self._owner.login
        return (
            _parse(OAuthToken, login.tokens)
            if login is not None and not self._owner.forces_new_login
            else None
        )

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._owner.store(tokens=tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        registered, login = self._owner.client, self._owner.login
        if registered.id:
            method = "client_secret_post" if registered.secret else "none"
            return OAuthClientInformationFull.model_validate(
                {
                    "client_id": registered.id,
                    "client_secret": registered.secret or None,
                    "redirect_uris": [self._redirect],
                    "token_endpoint_auth_method": method,
                }
            )
        text = "" if login is None or self._owner.forces_new_login else login.client
        known: OAuthClientInformationFull | None = _parse(OAuthClientInformationFull, text)
        return known

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._owner.store(client=client_info)


def _parse(model: Any, text: str) -> Any:
    """Parse a document with one of the SDK's models; None if it is missing or invalid."""
    try:
        return model.model_validate_json(text) if text else None
    except ValueError:
        return None


def _get_text(document: str, member: str) -> str:
    try:
        value = msgspec.json.decode(document).get(member)
    except (msgspec.DecodeError, AttributeError):
        return ""
    return value if isinstance(value, str) else ""
