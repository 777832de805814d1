"""Authorisation of requests to a remote child that wants a login (OAuth).

While a token is good it is put on every request, and that is all. What is beyond that, from finding the authorisation
server to renewing a token, is done by the official SDK, which is loaded only then. A person is needed for a login;
where there is none, because a host is being served, the request fails and says what to run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx2
from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.transport.http.remote_base import RemoteServer
from switchboard_mcp.transport.http.token_store import LoginFile, StoredLogin

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

UNAUTHORIZED = 401
LONG_AGO = 1.0
# Where a person is sent back to when nobody waits there: it is part of the registration, and never called.
NOWHERE = "http://127.0.0.1/callback"


class RegisteredClient(Struct, frozen=True):
    """How we are known to the authorisation server, where that was arranged beforehand."""

    id: str = ""
    secret: str = ""


class LoginPrompt(Struct, frozen=True):
    """Somebody who can log in. `visit` shows them an address; `returned` gives what came back to `redirect_uri`."""

    redirect_uri: str
    open_url: Callable[[str], Awaitable[None]]
    wait_for_callback: Callable[[], Awaitable[dict[str, str]]]


class OAuth(httpx2.Auth):
    """See the module. `register` hears every token, for it never to be shown."""

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
        self._read = False
        self._provider: OAuthClientProvider | None = None

    @property
    def login(self) -> StoredLogin | None:
        """What is known of the login."""
        if not self._read:
            self._read = True
            self._keep(self._file.read())
        return self._login

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Put the token on the request; where it is not taken, get another."""
        login = self.login
        token = login.access_token if login is not None and login.is_fresh(time.time()) else ""
        if token:
            request.headers["authorization"] = f"Bearer {token}"
        if token or login is None:
            response = yield request
            if response.status_code != UNAUTHORIZED or (login is None and self._prompt is None):
                return
        # The SDK's own flow. Its troubles become a failure that says what to do.
        flow = self._renewal(token).async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            return
        except SwitchboardError:
            raise
        except Exception as problem:  # the SDK has no common base for what can go wrong here
            raise SwitchboardError(self._wanted(str(problem))) from problem
        finally:
            await flow.aclose()

    def _renewal(self, refused: str) -> OAuthClientProvider:
        provider = self._provider = self._provider or self._load()
        held = provider.context.current_tokens
        if refused and (held is None or held.access_token == refused):
            provider.context.token_expiry_time = LONG_AGO  # it is not good, whatever it says: renew it
        return provider

    def _load(self) -> OAuthClientProvider:
        try:
            from mcp.client.auth import OAuthClientProvider
            from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
        except ImportError as problem:
            raise SwitchboardError(
                self._server.failure(
                    "transport_unsupported",
                    f"wants a login, for which the package {problem.name} is missing",
                    hint="Install it: pip install 'switchboard-mcp[oauth]', or '.[oauth]' in its folder.",
                )
            ) from problem
        logging.getLogger("mcp.client.auth").setLevel(
            logging.CRITICAL + 1
        )  # what it has to say is told as failures
        redirect = self._prompt.redirect_uri if self._prompt is not None else NOWHERE
        provider = OAuthClientProvider(
            self._server.url,
            OAuthClientMetadata.model_validate({"client_name": "Switchboard", "redirect_uris": [redirect]}),
            _Storage(self, redirect),
            self._visit,
            self._returned,
        )
        login = self.login
        if login is not None:
            context = provider.context
            context.token_expiry_time = login.expires_at or None
            context.oauth_metadata = _parsed(OAuthMetadata, login.server)
            context.protected_resource_metadata = _parsed(ProtectedResourceMetadata, login.resource)
            if context.protected_resource_metadata is not None:
                context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])
        return provider

    async def _visit(self, url: str) -> None:
        if self._prompt is None:
            raise SwitchboardError(self._wanted())
        await self._prompt.open_url(url)

    async def _returned(self) -> Any:
        from mcp.shared.auth import AuthorizationCodeResult

        assert self._prompt is not None
        return AuthorizationCodeResult.model_validate(await self._prompt.wait_for_callback())

    def _wanted(self, said: str = "") -> Failure:
        return self._server.failure(
            "child_unauthorized", "wants a new login", detail=said, hint=self._server.login_hint
        )

    def _keep(self, login: StoredLogin | None) -> None:
        self._login = login
        if login is not None and login.tokens:
            self._register(login.access_token)
            refresh = _text_in(login.tokens, "refresh_token")
            if refresh:
                self._register(refresh)

    def store(
        self, *, tokens: OAuthToken | None = None, client: OAuthClientInformationFull | None = None
    ) -> None:
        """Keep what the SDK has got."""
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
        self._keep(login)
        if login.tokens and (self._prompt is not None or self._file.exists):  # else somebody has logged out
            self._file.write(login)

    @property
    def path(self) -> str:
        """The file that the login is kept in."""
        return self._file.path

    @property
    def client(self) -> RegisteredClient:
        """How we are known by arrangement."""
        return self._client

    @property
    def forces_new_login(self) -> bool:
        """Whether an earlier registration is of no use, having named another place to come back to."""
        return self._prompt is not None


class _Storage:
    """The SDK's way to our file."""

    def __init__(self, owner: OAuth, redirect: str) -> None:
        self._owner = owner
        self._redirect = redirect

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        login = self._owner.login
        return (
            _parsed(OAuthToken, login.tokens)
            if login is not None and not self._owner.forces_new_login
            else None
        )

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._owner.store(tokens=tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        arranged, login = self._owner.client, self._owner.login
        if arranged.id:
            method = "client_secret_post" if arranged.secret else "none"
            return OAuthClientInformationFull.model_validate(
                {
                    "client_id": arranged.id,
                    "client_secret": arranged.secret or None,
                    "redirect_uris": [self._redirect],
                    "token_endpoint_auth_method": method,
                }
            )
        text = "" if login is None or self._owner.forces_new_login else login.client
        known: OAuthClientInformationFull | None = _parsed(OAuthClientInformationFull, text)
        return known

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._owner.store(client=client_info)


def _parsed(model: Any, text: str) -> Any:
    """A document of the SDK's, or None where it is missing or not what it should be."""
    try:
        return model.model_validate_json(text) if text else None
    except ValueError:
        return None


def _text_in(document: str, member: str) -> str:
    import msgspec

    try:
        value = msgspec.json.decode(document).get(member)
    except (msgspec.DecodeError, AttributeError):
        return ""
    return value if isinstance(value, str) else ""
