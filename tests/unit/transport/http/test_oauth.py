"""Logins: with the official SDK doing the work, against an authorisation server made for the test."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from switchboard_mcp.config.models import OAuthClient
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.transport.http.client import HttpClient
from switchboard_mcp.transport.http.oauth import OAuth
from switchboard_mcp.transport.http.remote_base import FirstRequest, LoginPrompt, RemoteServer
from switchboard_mcp.transport.http.streamable_http import StreamableHttpTransport
from switchboard_mcp.transport.http.token_store import LoginFile, StoredLogin, logins_folder
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.unit.transport.http.remotes import dialled
from tests.unit.transport.http.webserver import Json, Reply, Request, WebServer, serving

REDIRECT = "http://127.0.0.1:9/callback"


class Gate:
    """A server behind a login, and the authorisation server that it names, in one."""

    def __init__(self) -> None:
        self.web: WebServer
        self.clients: dict[str, Json] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.access: set[str] = set()
        self.refresh: set[str] = set()
        self.lifetime: int | None = 3600
        self.counted = 0
        self.challenge = True
        self.metadata: Json = {}

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.web.port}"

    def fresh(self, kind: str) -> str:
        self.counted += 1
        return f"{kind}-token-{self.counted:08d}"

    async def __call__(self, request: Request, reply: Reply) -> None:
        path = urlsplit(request.path).path
        if path == "/mcp":
            await self.resource(request, reply)
        elif path.startswith("/.well-known/oauth-protected-resource"):
            await reply.json({"resource": f"{self.root}/mcp", "authorization_servers": [f"{self.root}/as"]})
        elif path.startswith("/.well-known/oauth-authorization-server"):
            await reply.json(
                {
                    "issuer": f"{self.root}/as",
                    "authorization_endpoint": f"{self.root}/as/authorize",
                    "token_endpoint": f"{self.root}/as/token",
                    "registration_endpoint": f"{self.root}/as/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    **self.metadata,
                }
            )
        elif path == "/as/register":
            client = {**request.json, "client_id": self.fresh("client")}
            self.clients[client["client_id"]] = client
            await reply.json(client, 201)
        elif path == "/as/token":
            await self.token(dict(parse_qsl(request.body.decode())), reply)
        else:
            await reply.send(404)

    async def resource(self, request: Request, reply: Reply) -> None:
        if request.headers.get("authorization", "").removeprefix("Bearer ") in self.access:
            await (reply.send(405) if request.method == "GET" else reply.result(request, "welcome"))
        elif self.challenge:
            about = f'Bearer resource_metadata="{self.root}/.well-known/oauth-protected-resource/mcp"'
            await reply.send(401, www_authenticate=about)
        else:
            await reply.send(401)

    async def token(self, form: dict[str, str], reply: Reply) -> None:
        if form["grant_type"] == "client_credentials":
            access = self.fresh("access")
            self.access.add(access)
            await reply.json({"access_token": access, "token_type": "Bearer"})
            return
        if form["grant_type"] == "refresh_token" and form["refresh_token"] in self.refresh:
            self.refresh.remove(form["refresh_token"])
        elif form["grant_type"] != "authorization_code" or form["code"] not in self.codes:
            await reply.json({"error": "invalid_grant"}, 400)
            return
        access, refresh = self.fresh("access"), self.fresh("refresh")
        self.access.add(access)
        self.refresh.add(refresh)
        answer = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh}
        await reply.json(answer if self.lifetime is None else {**answer, "expires_in": self.lifetime})

    def consent(self, url: str) -> dict[str, str]:
        """What a person's browser brings back."""
        requested = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = self.fresh("code")
        self.codes[code] = requested
        return {"code": code, "state": requested["state"]}


class Visitor:
    """A person with a browser."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.visited: list[str] = []

    async def visit(self, url: str) -> None:
        self.visited.append(url)

    async def returned(self) -> dict[str, str]:
        return self.gate.consent(self.visited[-1])

    @property
    def person(self) -> LoginPrompt:
        return LoginPrompt(REDIRECT, self.visit, self.returned)


def new_file(tmp_path: Path) -> LoginFile:
    return LoginFile(str(tmp_path / "logins"), "kid", "http://example/mcp")


file = pytest.fixture(new_file, name="file")


async def log_in(gate: Gate, file: LoginFile, client: OAuthClient | None = None) -> Visitor:
    """As a person does it from a terminal."""
    visitor = Visitor(gate)
    server = RemoteServer(name="kid", url=gate.web.url)
    web = HttpClient(server, OAuth(server, file, lambda secret: None, client, visitor.person))
    async with web.stream("GET", gate.web.url, {}) as response:
        assert response.status_code != 401
    await web.aclose()
    return visitor


async def test_a_login_registers_asks_a_person_and_keeps_the_tokens_to_oneself(file: LoginFile) -> None:
    gate = Gate()

    async with serving(gate) as gate.web:
        visitor = await log_in(gate, file)
    (address,) = visitor.visited
    requested = dict(parse_qsl(urlsplit(address).query))
    assert address.startswith(f"{gate.root}/as/authorize?")
    assert (requested["redirect_uri"], requested["code_challenge_method"]) == (REDIRECT, "S256")
    login = file.read()
    assert login is not None
    assert login.access_token in gate.access
    assert login.expires_at > time.time()
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(file.path)).st_mode) == 0o700


class Known:
    """A gate with a login behind it."""

    def __init__(self, file: LoginFile) -> None:
        self.gate = Gate()
        self.file = file
        self.secrets: list[str] = []

    def auth(self) -> OAuth:
        server = RemoteServer(name="kid", url=self.gate.web.url)
        return OAuth(server, self.file, self.secrets.append)

    def keep(
        self,
        *,
        access: str = "old-access",
        refresh: str = "old-refresh",
        expires_in: float = 3600,
        scope: str = "",
    ) -> None:
        gate = self.gate
        self.file.write(
            StoredLogin(
                access_token=access,
                expires_at=time.time() + expires_in,
                tokens=json.dumps(
                    {"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": scope}
                ),
                client=json.dumps(
                    {"client_id": "c1", "redirect_uris": [REDIRECT], "issuer": f"{gate.root}/as"}
                ),
                server=json.dumps(
                    {
                        "issuer": f"{gate.root}/as",
                        "authorization_endpoint": f"{gate.root}/as/authorize",
                        "token_endpoint": f"{gate.root}/as/token",
                        "response_types_supported": ["code"],
                    }
                ),
                resource=json.dumps(
                    {"resource": f"{gate.root}/mcp", "authorization_servers": [f"{gate.root}/as"]}
                ),
            )
        )


def new_known(file: LoginFile) -> Known:
    return Known(file)


known = pytest.fixture(new_known, name="known")


async def test_a_good_token_goes_with_every_request_without_the_sdk(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = known.gate
    monkeypatch.setitem(sys.modules, "mcp.client.auth", None)
    async with serving(gate) as gate.web:
        known.keep()
        gate.access.add("old-access")
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            for id in (1, 2):
                rig.ask("tools/list", id)
            await rig.until_received(2)
        assert [request.headers["authorization"] for request in gate.web.requests] == [
            "Bearer old-access"
        ] * 2
    assert set(known.secrets) == {"old-access", "old-refresh"}


@each_case("why", ["expired", "refused"], file=new_file, known=new_known)
async def test_a_token_that_is_no_good_is_renewed_and_kept(known: Known, why: str) -> None:
    gate = known.gate
    async with serving(gate) as gate.web:
        known.keep(expires_in=-5 if why == "expired" else 3600)
        gate.refresh.add("old-refresh")
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/list", 1)
            await rig.until_received(1)
            rig.ask("tools/list", 2)
            await rig.until_received(2)
        assert [urlsplit(request.path).path for request in gate.web.requests].count("/as/token") == 1
    login = known.file.read()
    assert login is not None
    assert login.access_token in gate.access
    assert login.access_token in known.secrets
    # Another process finds it, and what it takes to renew it once more.
    gate.access.clear()
    async with serving(gate) as gate.web:
        known.keep(refresh=json.loads(login.tokens)["refresh_token"])
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/list", 3)
            await rig.until_received(1)


async def test_after_a_logout_no_token_is_renewed(known: Known) -> None:
    gate = known.gate
    async with serving(gate) as gate.web:
        known.keep()
        gate.access.add("old-access")
        gate.refresh.add("old-refresh")
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/list", 1)
            await rig.until_received(1)
            assert known.file.remove()
            gate.access.clear()
            rig.ask("tools/list", 2)
            assert (await rig.until_over()).code == "child_unauthorized"
        assert "/as/token" not in [request.path for request in gate.web.requests]
    login = known.file.read()
    assert login is not None
    assert login.tokens == ""


async def test_many_requests_that_are_refused_together_renew_once(known: Known) -> None:
    gate = known.gate
    async with serving(gate) as gate.web:
        known.keep()
        gate.refresh.add("old-refresh")
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            for id in range(10):
                rig.ask("tools/list", id)
            await rig.until_received(10)
        assert [urlsplit(request.path).path for request in gate.web.requests].count("/as/token") == 1


async def test_a_login_that_is_over_fails_and_says_what_to_run(
    known: Known, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = known.gate
    async with serving(gate) as gate.web:
        known.keep()
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/list")
            problem = await rig.until_over()
        assert "/as/register" not in [request.path for request in gate.web.requests]
    assert (problem.code, problem.retryable) == ("child_unauthorized", False)
    assert "`switchboard login kid`" in str(problem.hint)
    assert capsys.readouterr() == ("", "")


async def test_without_a_login_the_answer_says_what_to_run(known: Known) -> None:
    gate = known.gate
    async with (
        serving(gate) as gate.web,
        dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig,
    ):
        rig.ask("tools/list")
        problem = await rig.until_over()
        assert [request.path for request in gate.web.requests] == ["/mcp"]
    assert problem.code == "child_unauthorized"
    assert "`switchboard login kid`" in str(problem.hint)


async def test_a_refused_token_of_the_entry_starts_no_login(known: Known) -> None:
    gate = known.gate
    async with serving(gate) as gate.web:
        async with dialled(StreamableHttpTransport, gate.web.url, {"Authorization": "Bearer mine"}) as rig:
            rig.ask("tools/list")
            assert "login" not in str((await rig.until_over()).hint)
        gate.challenge = False
        async with dialled(StreamableHttpTransport, gate.web.url) as rig:
            rig.ask("tools/list")
            assert "login" not in str((await rig.until_over()).hint)


async def test_without_the_sdk_a_renewal_says_what_to_install(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = known.gate
    monkeypatch.setitem(sys.modules, "mcp.client.auth", None)
    monkeypatch.delitem(sys.modules, "switchboard_mcp.transport.http.oauth_sdk", raising=False)
    async with serving(gate) as gate.web:
        known.keep()
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/list")
            problem = await rig.until_lost()
    assert problem.code == "transport_unsupported"
    assert "[oauth]" in str(problem.hint)


@each_case("methods", [[], ["none", "client_secret_post"]], file=new_file)
async def test_a_client_that_was_arranged_is_not_registered(file: LoginFile, methods: list[str]) -> None:
    gate = Gate()
    gate.metadata["token_endpoint_auth_methods_supported"] = methods or None

    async with serving(gate) as gate.web:
        visitor = await log_in(gate, file, OAuthClient(client_id="mine", client_secret="s3cret-of-mine"))
        requests = {request.path: request for request in gate.web.requests}
    assert "client_id=mine" in visitor.visited[0]
    assert "/as/register" not in requests
    posted = urlencode({"client_secret": "s3cret-of-mine"}) in requests["/as/token"].body.decode()
    # In a header, as RFC 8414 has it, unless the server says otherwise.
    assert (posted, "authorization" in requests["/as/token"].headers) == (bool(methods), not methods)


async def test_a_login_that_the_person_does_not_finish_is_reported(file: LoginFile) -> None:
    gate = Gate()

    async def wrong() -> dict[str, str]:
        return {"code": "x", "state": "forged"}

    async with serving(gate) as gate.web:
        server = RemoteServer(name="kid", url=gate.web.url)
        person = LoginPrompt(REDIRECT, Visitor(gate).visit, wrong)
        web = HttpClient(server, OAuth(server, file, lambda secret: None, None, person))
        with pytest.raises(SwitchboardError, match="requires a new login"):
            async with web.stream("GET", gate.web.url, {}):
                pass
        await web.aclose()
    assert file.read() is None


def ignore(secret: str) -> None:
    """Where secrets go that no test looks at."""


# --- renewal -------------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_does_not_interrupt_a_renewal(known: Known) -> None:
    gate, asked, go_on = known.gate, asyncio.Event(), asyncio.Event()

    async def slow(request: Request, reply: Reply) -> None:
        if request.path == "/as/token":
            asked.set()
            await go_on.wait()
        await gate(request, reply)

    async with serving(slow) as gate.web:
        known.keep(expires_in=-5)
        gate.refresh.add("old-refresh")
        auth = known.auth()
        web = HttpClient(RemoteServer(name="kid", url=gate.web.url), auth)

        async def call() -> None:
            async with web.stream("POST", gate.web.url, {}, b"{}"):
                pass

        caller = asyncio.create_task(call())
        await asked.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go_on.set()
        await web.aclose()  # waits for the renewal
    login = known.file.read()
    assert login is not None
    assert login.access_token in gate.access
    assert login.refresh_token in gate.refresh


async def test_two_servers_of_one_login_renew_it_once(known: Known) -> None:
    gate = known.gate
    async with serving(gate) as gate.web:
        known.keep()
        gate.refresh.add("old-refresh")
        async with (
            dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as one,
            dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as other,
        ):
            one.ask("tools/list", 1)
            other.ask("tools/list", 1)
            await one.until_received(1)
            await other.until_received(1)
        assert [request.path for request in gate.web.requests].count("/as/token") == 1


@each_case("status", [503, 429], file=new_file, known=new_known)
async def test_an_authorization_server_that_is_down_costs_no_login(known: Known, status: int) -> None:
    gate, down = known.gate, [True]

    async def flaky(request: Request, reply: Reply) -> None:
        if request.path == "/as/token" and down:
            await reply.send(status)
        else:
            await gate(request, reply)

    async with serving(flaky) as gate.web:
        known.keep(expires_in=-5)
        gate.refresh.add("old-refresh")
        auth = known.auth()
        async with dialled(StreamableHttpTransport, gate.web.url, auth=auth) as rig:
            rig.ask("tools/list")
            problem = await rig.until_lost()
        assert (problem.code, problem.retryable) == ("child_unreachable", True)
        assert str(status) in problem.message
        down.clear()
        async with dialled(StreamableHttpTransport, gate.web.url, auth=auth) as rig:
            rig.ask("tools/list")
            await rig.until_received(1)


# Every system call between the answer of the authorization server and the first use of the token.
STEPS = ["open", "fsync", "replace", "fsync 2", "close 2"]


@each_case("step", STEPS, file=new_file)
def test_a_crash_leaves_the_old_login_or_the_new_one(file: LoginFile, step: str) -> None:
    old, new = StoredLogin(access_token="old", tokens="{}"), StoredLogin(access_token="new", tokens="{}")
    file.write(old)
    name, _, nth = step.partition(" ")
    pid = os.fork()
    if not pid:  # the process that crashes
        calls, real = [0], getattr(os, name)

        def crash(*args: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == int(nth or 1):
                os._exit(9)
            return real(*args, **more)

        setattr(os, name, crash)

        async def renew() -> None:
            async with file.locked(RemoteServer(name="kid", url="http://x")):
                file.write(new)

        try:
            asyncio.run(renew())
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    kept = file.read()
    assert kept == (new if STEPS.index(step) > STEPS.index("replace") else old)

    async def go_on() -> None:
        async with asyncio.timeout(PATIENCE_S), file.locked(RemoteServer(name="kid", url="http://x")):
            file.write(new)

    asyncio.run(go_on())
    assert file.read() == new


async def test_a_token_is_stored_before_it_is_used(known: Known) -> None:
    gate, stored = known.gate, []

    async def watched(request: Request, reply: Reply) -> None:
        if request.path == "/mcp":
            login = known.file.read()
            assert login is not None
            stored.append(request.headers["authorization"] == f"Bearer {login.access_token}")
        await gate(request, reply)

    async with serving(watched) as gate.web:
        known.keep(expires_in=-5)
        gate.refresh.add("old-refresh")
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/list")
            await rig.until_received(1)
    assert stored == [True]


# --- scopes --------------------------------------------------------------------------------------------------------


async def test_a_call_that_needs_more_scopes_fails_alone_until_the_next_login(known: Known) -> None:
    gate = known.gate

    async def scoped(request: Request, reply: Reply) -> None:
        if request.headers.get("authorization") == "Bearer old-access" and b"tools/call" in request.body:
            await reply.send(403, www_authenticate='Bearer error="insufficient_scope", scope="write"')
        else:
            await gate(request, reply)

    async with serving(scoped) as gate.web:
        known.keep(scope="read")
        gate.access.add("old-access")
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/call", 1)
            problem = await rig.until_lost(1)
            assert problem.code == "child_scope_missing"
            assert "'write'" in problem.message
            assert "`switchboard login kid`" in str(problem.hint)
            rig.ask("tools/list", 2)
            await rig.until_received(1)
            visitor = await log_in(gate, known.file)
            assert dict(parse_qsl(urlsplit(visitor.visited[0]).query))["scope"] == "read write"
            rig.ask("tools/call", 3)
            await rig.until_received(2)


async def test_a_renewed_token_that_is_refused_too_is_replaced_by_the_next_login(known: Known) -> None:
    gate, moved = known.gate, True

    async def elsewhere(request: Request, reply: Reply) -> None:
        if moved and b"tools/call" in request.body:
            await reply.send(401, www_authenticate='Bearer scope="new"')
        elif request.path == "/mcp" and moved:
            await reply.send(405)  # nothing else asks for a login
        else:
            await gate(request, reply)

    async with serving(elsewhere) as gate.web:
        known.keep()
        gate.refresh.add("old-refresh")
        async with dialled(StreamableHttpTransport, gate.web.url, auth=known.auth()) as rig:
            rig.ask("tools/call")
            assert (await rig.until_over()).code == "child_unauthorized"
        visitor = await log_in(gate, known.file)
        assert dict(parse_qsl(urlsplit(visitor.visited[0]).query))["scope"] == "new"


@each_case("grant", ["authorization_code", "client_credentials"], file=new_file)
async def test_a_server_that_is_never_content_is_asked_three_times(file: LoginFile, grant: Any) -> None:
    gate = Gate()

    async def greedy(request: Request, reply: Reply) -> None:
        if request.path == "/mcp" and "authorization" in request.headers:
            await reply.send(403, www_authenticate='Bearer error="insufficient_scope", scope="more"')
        else:
            await gate(request, reply)

    async with serving(greedy) as gate.web:
        server = RemoteServer(name="kid", url=gate.web.url)
        client = OAuthClient(grant=grant, client_id="me", client_secret="s3cret-x", issuer=f"{gate.root}/as")
        code = grant == "authorization_code"
        auth = OAuth(server, file if code else None, ignore, client, Visitor(gate).person if code else None)
        with pytest.raises(SwitchboardError) as raised:
            await auth.authorize([FirstRequest("POST", {}, b"{}")])
        assert [request.path for request in gate.web.requests].count("/as/token") == 3
    assert raised.value.failure.code == "child_scope_missing"


# --- the client ----------------------------------------------------------------------------------------------------

DOCUMENT = "https://me.example/client.json"


@each_case("supported", [True, False], file=new_file)
async def test_a_metadata_document_comes_before_a_registration(file: LoginFile, supported: bool) -> None:
    gate = Gate()
    gate.metadata["client_id_metadata_document_supported"] = supported
    async with serving(gate) as gate.web:
        visitor = await log_in(gate, file, OAuthClient(client_metadata_url=DOCUMENT))
        paths = [request.path for request in gate.web.requests]
    client = dict(parse_qsl(urlsplit(visitor.visited[0]).query))["client_id"]
    assert (client == DOCUMENT, "/as/register" in paths) == (supported, not supported)


KEYS: dict[str, Callable[[], ec.EllipticCurvePrivateKey | Ed25519PrivateKey]] = {
    "EC": lambda: ec.generate_private_key(ec.SECP256R1()),
    "Ed25519": Ed25519PrivateKey.generate,
}


@each_case("key", ["", *KEYS])
async def test_client_credentials_need_nobody(tmp_path: Path, key: str) -> None:
    gate, secrets = Gate(), list[str]()
    pem = tmp_path / "key.pem"
    if key:
        pem.write_bytes(KEYS[key]().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    async with serving(gate) as gate.web:
        client = OAuthClient(
            grant="client_credentials",
            client_id="me",
            client_secret="" if key else "s3cret-of-me",
            private_key_file=str(pem) if key else "",
            issuer=f"{gate.root}/as",
        )
        server = RemoteServer(name="kid", url=gate.web.url)
        auth = OAuth(server, None, secrets.append, client)
        async with dialled(StreamableHttpTransport, gate.web.url, auth=auth) as rig:
            for id in range(3):
                rig.ask("tools/list", id)
            await rig.until_received(3)
        (request,) = [request for request in gate.web.requests if request.path == "/as/token"]
    form = dict(parse_qsl(request.body.decode()))
    assert (form["grant_type"], form["resource"]) == ("client_credentials", f"{gate.root}/mcp")
    if key:
        claims = jwt.decode(form["client_assertion"], options={"verify_signature": False})
        assert (claims["iss"], claims["aud"]) == ("me", f"{gate.root}/as")
    else:
        assert request.headers["authorization"].startswith("Basic ")
    assert len(secrets) >= 1


REFUSALS: dict[str, tuple[Json, OAuthClient, str]] = {
    "no PKCE": ({"code_challenge_methods_supported": None}, OAuthClient(), "does not support PKCE"),
    "other issuer in metadata": ({"issuer": "https://evil.example"}, OAuthClient(), "issuer mismatch"),
    "plain HTTP elsewhere": (
        {"token_endpoint": "http://as.example/token"},
        OAuthClient(),
        "not reached over HTTPS",
    ),
    "no registration": (
        {"registration_endpoint": "{root}/nowhere"},
        OAuthClient(),
        "does not register clients",
    ),
    "other issuer than configured": (
        {},
        OAuthClient(client_id="me", issuer="https://as.example"),
        "oauth.issuer",
    ),
}


@each_case("case", REFUSALS, file=new_file)
async def test_an_authorization_server_that_breaks_the_rules_gets_nothing(file: LoginFile, case: str) -> None:
    gate = Gate()
    metadata, client, text = REFUSALS[case]
    async with serving(gate) as gate.web:
        gate.metadata = {
            name: value.replace("{root}", gate.root) if isinstance(value, str) else value
            for name, value in metadata.items()
        }
        with pytest.raises(SwitchboardError, match=text):
            await log_in(gate, file, client)
        assert "/as/token" not in [request.path for request in gate.web.requests]
    login = file.read()
    assert login is None or not login.tokens


async def test_credentials_go_to_their_issuer_only() -> None:
    gate = Gate()
    async with serving(gate) as gate.web:
        client = OAuthClient(
            grant="client_credentials", client_id="me", client_secret="s3cret-x", issuer="https://as.example"
        )
        server = RemoteServer(name="kid", url=gate.web.url)
        with pytest.raises(SwitchboardError, match="did not accept the client credentials"):
            await OAuth(server, None, ignore, client).authorize([FirstRequest("POST", {}, b"{}")])
        assert "/as/token" not in [request.path for request in gate.web.requests]


class TestFile:
    def test_files_that_others_can_read_or_write_are_not_trusted(self, file: LoginFile) -> None:
        file.write(StoredLogin(access_token="abc"))
        assert file.read() == StoredLogin(access_token="abc")
        for mode in (0o640, 0o604, 0o620):
            os.chmod(file.path, mode)
            assert file.read() is None

    def test_an_invalid_login_file_is_no_login(self, file: LoginFile) -> None:
        assert file.read() is None
        file.write(StoredLogin())
        Path(file.path).write_text("{")
        assert file.read() is None

    def test_it_is_removed_once(self, file: LoginFile) -> None:
        assert not file.remove()
        file.write(StoredLogin(access_token="abc"))
        assert file.exists
        assert [file.remove(), file.remove(), file.exists] == [True, False, False]

    def test_a_link_is_not_followed(self, file: LoginFile, tmp_path: Path) -> None:
        file.write(StoredLogin(access_token="abc"))
        elsewhere = tmp_path / "elsewhere"
        os.rename(file.path, elsewhere)
        os.symlink(elsewhere, file.path)
        assert file.read() is None

    def test_each_child_and_address_has_its_own(self, tmp_path: Path) -> None:
        paths = {
            LoginFile(str(tmp_path), name, url).path for name in "ab" for url in ("http://x", "http://y")
        }
        assert len(paths) == 4

    @each_case(
        ("environ", "folder"),
        [
            ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/switchboard-mcp/logins"),
            ({"HOME": "/h"}, "/h/.local/state/switchboard-mcp/logins"),
            ({}, ""),
        ],
    )
    def test_they_are_where_a_user_keeps_state(self, environ: dict[str, str], folder: str) -> None:
        assert logins_folder(environ) == folder

    @each_case(
        ("login", "fresh"),
        [
            (StoredLogin(), False),
            (StoredLogin(access_token="x"), True),
            (StoredLogin(access_token="x", expires_at=1100), True),
            (StoredLogin(access_token="x", expires_at=1010), False),
        ],
    )
    def test_a_token_is_fresh_until_shortly_before_its_end(self, login: StoredLogin, fresh: bool) -> None:
        assert login.is_fresh(1000) is fresh
