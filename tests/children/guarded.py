"""A server on the official SDK that wants a login, with its own authorisation server: `guarded.py [LIFETIME]`.

The first line of its output is its address. Whoever asks for consent gets it at once. Tokens live for LIFETIME seconds.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import time

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl


class Keys(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Everybody and everything it has handed out."""

    def __init__(self, lifetime: int) -> None:
        self.lifetime = lifetime
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            client_id=client.client_id,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            expires_at=time.time() + 60,
            scopes=params.scopes or ["use"],
            code_challenge=params.code_challenge,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.hand_out(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self.hand_out(client.client_id, scopes, None)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def hand_out(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_hex(24), secrets.token_hex(24)
        ends = int(time.time()) + self.lifetime
        self.access[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, expires_at=ends, resource=resource
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes)
        )


async def main(lifetime: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # asyncio does that only for its own sockets
    root = f"http://127.0.0.1:{listener.getsockname()[1]}"
    keys = Keys(lifetime)
    options = ClientRegistrationOptions(enabled=True, valid_scopes=["use"], default_scopes=["use"])
    server = MCPServer(
        "guarded",
        auth_server_provider=keys,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(root),
            resource_server_url=AnyHttpUrl(f"{root}/mcp"),
            client_registration_options=options,
            required_scopes=["use"],
        ),
    )

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def forget() -> str:
        """Take all tokens back."""
        keys.access.clear()
        keys.refresh.clear()
        return "forgotten"

    print(f"{root}/mcp", flush=True)
    app = server.streamable_http_app()
    await uvicorn.Server(uvicorn.Config(app, log_level="critical")).serve([listener])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3600))
