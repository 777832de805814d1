"""Obtains and renews the tokens of remote children, with the official SDK.

Discovery, client registration, PKCE, resource indicators and the checks of the issuer are the SDK's. Its flow is run
for a request that is never sent: the requests that it makes on the way are, and the result is a token. Added here are
the rules that it leaves to its user: which client to be, credentials for one issuer only, no authorization without
PKCE, no plain HTTP, and limits of time and size. Loaded when a token is needed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx2
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    issuers_match,
    union_scopes,
    validate_authorization_response_iss,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from msgspec import structs
from pydantic import BaseModel

from switchboard_mcp.config.models import OAuthClient
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.protocol import versions
from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.transport.http.client import HTTP_ERRORS, read_body
from switchboard_mcp.transport.http.proxies import ProxiedTransport
from switchboard_mcp.transport.http.remote_base import LoginPrompt, RemoteServer, describe_error, redacted_url
from switchboard_mcp.transport.http.token_store import StoredLogin

Store = Callable[[StoredLogin], Awaitable[None]]
Model = TypeVar("Model", bound=BaseModel)

# Time for one answer of an authorization server.
REQUEST_TIMEOUT_S = 30.0
# Far more than any of its documents has.
MAX_ANSWER_BYTES = 1_048_576
LONG_AGO = 1.0
TOO_MANY_REQUESTS, SERVER_ERROR = 429, 500
CLIENT_NAME = "Switchboard"
# The redirect URI if nobody is there to log in: the SDK wants one, and it is never requested.
PLACEHOLDER_REDIRECT_URI = "http://127.0.0.1/callback"
# Algorithms by the curve of an elliptic key; other keys have one each.
EC_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}

# Its errors are reported as failures.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class TokenClient:
    """Gets tokens for one remote child. `store` is called with new tokens before they are used."""

    def __init__(self, server: RemoteServer, client: OAuthClient, prompt: LoginPrompt | None) -> None:
        self._server = server
        self._client = client
        self._prompt = prompt

    async def refresh(self, login: StoredLogin, store: Store) -> str:
        """Return a new access token for a stored login. Raises SwitchboardError if only a new login gives one."""
        storage = _Storage(login, store, self._registered_client(_parse(OAuthMetadata, login.server)))
        provider = self._code_provider(storage)
        # Whatever its expiry says, the token is not to be used any more.
        provider.context.token_expiry_time = LONG_AGO
        await self._run(provider, None)
        if not storage.token:
            raise self._login_required("The refresh token was not accepted.")
        return storage.token

    async def authorize(self, login: StoredLogin, response: httpx2.Response | None, store: Store) -> str:
        """Return an access token of a new authorization, by a person or with the client's own credentials.

        `response` is the server's challenge; without one, the challenge that was stored with the login counts.
        """
        challenge = response.headers.get("www-authenticate", "") if response is not None else login.challenge
        storage = _Storage(StoredLogin(challenge=challenge), store, self._registered_client(None))
        if self._client.grant == "client_credentials":
            provider = await self._credentials_provider(storage)
        else:
            provider = self._code_provider(storage)
        await self._run(provider, _challenge(challenge, login, self._client.scopes))
        return storage.token

    async def _run(self, provider: OAuthClientProvider, challenge: httpx2.Response | None) -> None:
        """Run the SDK's flow until it would send the request itself."""
        # With its protocol version, the resource indicator is part of every request for a token.
        request = httpx2.Request(
            "POST", self._server.url, headers={"mcp-protocol-version": versions.LATEST_LEGACY}
        )
        flow = provider.async_auth_flow(request)
        try:
            async with httpx2.AsyncClient(transport=ProxiedTransport()) as http:
                outgoing = await anext(flow)
                while outgoing is not request:
                    outgoing = await flow.asend(await self._send(http, outgoing, retryable=True))
                if challenge is None:
                    return
                outgoing = await flow.asend(challenge)
                while outgoing is not request:
                    outgoing = await flow.asend(await self._send(http, outgoing))
        except SwitchboardError:
            raise
        except OAuthRegistrationError as problem:
            hint = (
                "Register a client there yourself and set `oauth.clientId`, or publish a client ID metadata document "
                "and set `oauth.clientMetadataUrl`."
            )
            raise SwitchboardError(
                self._server.failure(
                    "child_unauthorized", "does not register clients", detail=str(problem), hint=hint
                )
            ) from problem
        except Exception as problem:  # the SDK has no common base for what can go wrong here
            raise self._login_required(str(problem)) from problem
        finally:
            await flow.aclose()

    async def _send(
        self, http: httpx2.AsyncClient, request: httpx2.Request, *, retryable: bool = False
    ) -> httpx2.Response:
        """Send a request to the authorization server. With `retryable`, its problems are not the login's."""
        if not _is_protected(request.url, httpx2.URL(self._server.url)):
            raise self._login_required(
                f"Its authorization server is not reached over HTTPS: {redacted_url(str(request.url))}"
            )
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                response = await http.send(request, stream=True, follow_redirects=False)
                try:
                    body = await read_body(response, MAX_ANSWER_BYTES)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise self._unreachable(request, f"did not answer within {REQUEST_TIMEOUT_S:g} s") from None
        except HTTP_ERRORS as problem:
            raise self._unreachable(request, f"cannot be reached: {describe_error(problem)}") from problem
        if isinstance(body, Oversized):
            raise self._unreachable(request, "sends too much")
        if retryable and (response.status_code >= SERVER_ERROR or response.status_code == TOO_MANY_REQUESTS):
            raise self._unreachable(request, f"answered with HTTP {response.status_code}")
        headers = {
            name: value for name, value in response.headers.items() if name in ("content-type", "location")
        }
        answer = httpx2.Response(response.status_code, headers=headers, content=body, request=request)
        answer.next_request = response.next_request
        return answer

    # --- the client that we are ------------------------------------------------------------------------------------

    def _code_provider(self, storage: _Storage) -> OAuthClientProvider:
        """Return the SDK's provider for a login by a person."""
        redirect = self._prompt.redirect_uri if self._prompt is not None else PLACEHOLDER_REDIRECT_URI
        provider = OAuthClientProvider(
            self._server.url,
            OAuthClientMetadata.model_validate({"client_name": CLIENT_NAME, "redirect_uris": [redirect]}),
            storage,
            lambda url: self._open_url(provider, url),
            lambda: self._wait_for_callback(provider),
            self._client.client_metadata_url or None,
        )
        storage.provider = provider
        login, context = storage.login, provider.context
        context.oauth_metadata = _parse(OAuthMetadata, login.server)
        context.protected_resource_metadata = _parse(ProtectedResourceMetadata, login.resource)
        if context.protected_resource_metadata is not None:
            context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])
        return provider

    async def _credentials_provider(self, storage: _Storage) -> OAuthClientProvider:
        """Return the SDK's provider for the client's own credentials, which go to their issuer only."""
        client, url = self._client, self._server.url
        provider: OAuthClientProvider
        if client.private_key_file:
            key, algorithm = await asyncio.to_thread(self._private_key)
            parameters = SignedJWTParameters(
                issuer=client.client_id,
                subject=client.client_id,
                signing_key=key,
                signing_algorithm=algorithm,
            )
            provider = PrivateKeyJWTOAuthProvider(
                url, storage, client.client_id, parameters.create_assertion_provider(), issuer=client.issuer
            )
        else:
            method = client.token_endpoint_auth_method or "client_secret_basic"
            provider = ClientCredentialsOAuthProvider(
                url, storage, client.client_id, client.client_secret, method, issuer=client.issuer
            )
        storage.provider = provider
        return provider

    def _private_key(self) -> tuple[str, str]:
        """Return the private key and the algorithm that it is for."""
        path = self._client.private_key_file
        try:
            with open(path, encoding="ascii") as file:
                key = file.read()
            return key, self._client.signing_algorithm or _algorithm(key)
        except (OSError, ValueError, TypeError) as problem:
            reason = (
                problem.strerror if isinstance(problem, OSError) else "it is not a private key in PEM format"
            )
            raise SwitchboardError(
                self._server.failure(
                    "config_invalid",
                    f"needs a private key, and {path} cannot be used: {reason}",
                    hint="Set `oauth.privateKeyFile` to the PEM file of a key without a password.",
                )
            ) from None

    def _registered_client(self, server: OAuthMetadata | None) -> OAuthClientInformationFull | None:
        """Return the client that was registered beforehand, for a server whose metadata may not be known yet."""
        client = self._client
        if not client.client_id:
            return None
        redirect = self._prompt.redirect_uri if self._prompt is not None else PLACEHOLDER_REDIRECT_URI
        return OAuthClientInformationFull.model_validate(
            {
                "client_id": client.client_id,
                "client_secret": client.client_secret or None,
                "redirect_uris": [redirect],
                "token_endpoint_auth_method": self._auth_method(server) if client.client_secret else "none",
                "issuer": client.issuer or None,
            }
        )

    def _auth_method(self, server: OAuthMetadata | None) -> str:
        """Return how to send the client secret. The default is RFC 8414's."""
        supported = server.token_endpoint_auth_methods_supported if server is not None else None
        only_post = bool(supported) and "client_secret_basic" not in (supported or ())
        return self._client.token_endpoint_auth_method or (
            "client_secret_post" if only_post else "client_secret_basic"
        )

    # --- a person --------------------------------------------------------------------------------------------------

    async def _open_url(self, provider: OAuthClientProvider, url: str) -> None:
        context = provider.context
        server = context.oauth_metadata
        if server is not None and "S256" not in (server.code_challenge_methods_supported or ()):
            raise self._login_required(f"The authorization server {server.issuer} does not support PKCE.")
        issuer = self._client.issuer
        if issuer and (server is None or not issuers_match(str(server.issuer), issuer)):
            raise self._login_required(
                f"`oauth.issuer` is {issuer}, and the server uses {server.issuer if server else 'none'}."
            )
        if self._client.client_id and self._client.client_secret and context.client_info is not None:
            context.client_info.token_endpoint_auth_method = self._auth_method(server)
        if self._prompt is None:
            raise self._login_required("")
        await self._prompt.open_url(url)

    async def _wait_for_callback(self, provider: OAuthClientProvider) -> AuthorizationCodeResult:
        assert self._prompt is not None
        query = await self._prompt.wait_for_callback()
        if "code" in query:
            return AuthorizationCodeResult.model_validate(query)
        # An error counts only if it comes from the server that was asked.
        validate_authorization_response_iss(query.get("iss"), provider.context.oauth_metadata)
        reason = query.get("error_description") or query.get("error", "no reason given")
        raise SwitchboardError(
            self._server.failure(
                "child_unauthorized", "refused the login", detail=reason, hint="Run the command again."
            )
        )

    # --- failures --------------------------------------------------------------------------------------------------

    def _login_required(self, detail: str) -> SwitchboardError:
        if self._client.grant == "client_credentials":
            what, hint = "did not accept the client credentials", "Check `oauth` of the child."
        else:
            what, hint = "requires a new login", self._server.login_hint
        return SwitchboardError(self._server.failure("child_unauthorized", what, detail=detail, hint=hint))

    def _unreachable(self, request: httpx2.Request, what: str) -> SwitchboardError:
        where = redacted_url(str(request.url))
        return SwitchboardError(
            self._server.failure(
                "child_unreachable",
                f"needs a new token, and its authorization server {what} ({where})",
                hint="Try again. The login is kept.",
            )
        )


class _Storage:
    """Passes tokens and client between the SDK and a stored login."""

    def __init__(
        self, login: StoredLogin, store: Store, registered: OAuthClientInformationFull | None
    ) -> None:
        self.login = login
        self.token = ""
        self.provider: OAuthClientProvider
        self._store = store
        self._registered = registered

    async def get_tokens(self) -> OAuthToken | None:
        return _parse(OAuthToken, self.login.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.provider.context
        server, resource = context.oauth_metadata, context.protected_resource_metadata
        self.login = structs.replace(
            self.login,
            access_token=tokens.access_token,
            expires_at=time.time() + tokens.expires_in if tokens.expires_in else 0.0,
            tokens=tokens.model_dump_json(exclude_none=True),
            server=server.model_dump_json(exclude_none=True) if server is not None else self.login.server,
            resource=resource.model_dump_json(exclude_none=True)
            if resource is not None
            else self.login.resource,
            challenge="",
        )
        await self._store(self.login)
        self.token = tokens.access_token

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._registered or _parse(OAuthClientInformationFull, self.login.client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        # Stored together with the tokens: without them, the next login registers a client of its own.
        self.login = structs.replace(self.login, client=client_info.model_dump_json(exclude_none=True))


def _challenge(header: str, login: StoredLogin, scopes: list[str]) -> httpx2.Response:
    """Return the challenge for the SDK: the server's, with the scopes that the login has and the configured ones.

    Without a scope in it, the SDK asks for those that the server's metadata lists.
    """
    received = httpx2.Response(401, headers={"www-authenticate": header} if header else {})
    scope = extract_field_from_www_auth(received, "scope")
    if extract_field_from_www_auth(received, "error") == "insufficient_scope":
        tokens = _parse(OAuthToken, login.tokens)
        scope = union_scopes(tokens.scope if tokens is not None else None, scope)
    scope = union_scopes(scope, " ".join(scopes))
    metadata = extract_field_from_www_auth(received, "resource_metadata")
    fields = {"resource_metadata": metadata, "scope": scope}
    text = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)
    return httpx2.Response(401, headers={"www-authenticate": f"Bearer {text}".rstrip()})


def _is_protected(url: httpx2.URL, server: httpx2.URL) -> bool:
    """Return True if a request may carry secrets: over TLS, or to the plain HTTP server's own machine."""
    if url.scheme == "https":
        return True
    same = url.host == server.host or (_is_loopback(url.host) and _is_loopback(server.host))
    return url.scheme == "http" and server.scheme == "http" and same


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _algorithm(key: str) -> str:
    """Return the algorithm for a private key. Raises ValueError or TypeError."""
    loaded = load_pem_private_key(key.encode(), None)
    if isinstance(loaded, ec.EllipticCurvePrivateKey):
        return EC_ALGORITHMS.get(loaded.curve.name, "")
    return "RS256" if isinstance(loaded, rsa.RSAPrivateKey) else "EdDSA"


def _parse(model: type[Model], text: str) -> Model | None:
    """Parse a document with one of the SDK's models; None if it is missing or invalid."""
    try:
        return model.model_validate_json(text) if text else None
    except ValueError:
        return None
