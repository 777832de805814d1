"""The HTTP front under people who should not be there, or do not behave."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from tests.cases import each_case
from tests.e2e import shell
from tests.e2e.host import Json
from tests.e2e.test_http_front import GATE, raw_post, text_of
from tests.e2e.test_telemetry import Collector
from tests.e2e.test_telemetry import collector as collector  # a fixture
from tests.e2e.web import Answer, Web, call, headers_of, modern, request, serving, start
from tests.e2e.workspaces import add_child, configure
from tests.patience import PATIENCE_S

ADA, BOB = "ada's-own-token-0123456789", "bob's-own-token-0123456789"
PAGE = "https://app.example.com"
LIST = modern("tools/list")
MIB = 1024 * 1024
DASHBOARD = (
    "/api/overview",
    "/api/children",
    "/api/children/gate",
    "/api/calls",
    "/api/history",
    "/api/audit",
)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A front with two named tokens and one page that may connect, shared by the tests of the module."""
    workspace = tmp_path_factory.mktemp("guarded")
    http = {
        "tokens": {"ada": "${ADA_TOKEN}", "bob": BOB},
        "allowedOrigins": [PAGE],
        "allowedHosts": ["gateway.internal"],
        "maxBodyBytes": MIB,
    }
    configure(workspace, {"http": http})
    add_child(workspace, "gate", GATE)
    env = {"XDG_CACHE_HOME": str(workspace / "cache"), "ADA_TOKEN": ADA}
    with serving(workspace, "--log-level", "debug", env=env) as running:
        yield running


def ask(web: Web, message: Json = LIST, path: str = "/mcp", **headers: str | None) -> Answer:
    return web.ask("POST", path, message, headers_of(message, **headers))


# --- tokens ----------------------------------------------------------------------------------------------


@each_case(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer {token}x",
        "Bearer {token} x",
        "Bearer {short}",
        "Basic {token}",
        "{token}",
    ],
)
@each_case("requested", ["POST /mcp", "GET /mcp", "GET /sse", "POST /messages"])
def test_without_the_right_token_nobody_gets_in(web: Web, header: str | None, requested: str) -> None:
    method, path = requested.split()
    result = header and header.format(token=web.token, short=web.token[:-1])
    answer = web.ask(method, path, LIST if method == "POST" else None, {"Authorization": result})
    assert answer.status == 401
    named = result is not None and result.startswith("Bearer ") and result.strip() != "Bearer"
    assert answer.headers["www-authenticate"] == ('Bearer error="invalid_token"' if named else "Bearer")
    assert (b"earlier start" in answer.body) == named


def test_the_scheme_is_read_in_any_case(web: Web) -> None:
    assert ask(web, Authorization=f"bEARER  {web.token}").status == 200


def test_a_running_server_follows_new_and_revoked_tokens(workspace: Path) -> None:
    configure(workspace, {})
    with serving(workspace) as web:

        def await_status(token: str, expected: int, path: str = "/api/overview") -> None:
            deadline = time.monotonic() + PATIENCE_S
            while (
                status := web.ask("GET", path, None, {"Authorization": f"Bearer {token}"}).status
            ) != expected:
                assert time.monotonic() < deadline, status

        def create() -> str:
            made = shell.run(workspace, "token", "new", "ada", "--dashboard", "admin", "--json")
            token: str = json.loads(made.stdout)["token"]
            await_status(token, 200)
            return token

        token = create()
        login = web.ask("POST", "/api/login", json.dumps({"token": token}).encode(), {"Authorization": None})
        cookie = {"Authorization": None, "Cookie": login.headers["set-cookie"].partition(";")[0],
                  "X-Page-Key": json.loads(login.body)["pageKey"]}  # fmt: skip
        assert web.ask("GET", "/api/overview", None, cookie).status == 200
        session = ask(web, Authorization=f"Bearer {token}")
        assert session.status == 200
        assert shell.run(workspace, "token", "revoke", "ada").returncode == 0
        await_status(token, 401)
        await_status(token, 401, "/status")
        assert web.ask("GET", "/api/overview", None, cookie).status == 401
        second = create()
        assert (
            web.ask("GET", "/api/overview", None, cookie).status == 401
        )  # of the same name, and another token
        await_status(token, 401)
        await_status(second, 200)
        assert "restart_needed" not in web.log.read_text()


def test_a_named_token_is_shown_once_stored_as_its_hash_and_can_be_revoked(workspace: Path) -> None:
    config = workspace / "switchboard.config.json"
    made = shell.run(workspace, "token", "new", "ci", "--json")
    token = json.loads(made.stdout)["token"]
    assert token not in config.read_text()
    stored = json.loads(config.read_text())["http"]["tokens"]["ci"]
    assert stored == "sha256:" + hashlib.sha256(token.encode()).hexdigest()
    assert shell.run(workspace, "token", "new", "ci").returncode == 2
    for name in ("CI", "overseer"):  # the same agent, and a reserved name: the config would be invalid
        assert shell.run(workspace, "token", "new", name).returncode == 2
    with serving(workspace) as web:
        assert ask(web, Authorization=f"Bearer {token}").status == 200
        assert ask(web, Authorization=f"Bearer {stored}").status == 401
        assert ask(web, Authorization=f"Bearer {stored.removeprefix('sha256:')}").status == 401
    listed = json.loads(shell.run(workspace, "token", "list", "--json").stdout)["tokens"]
    assert [(row["name"], row["stored"]) for row in listed] == [("ci", "hash")]
    assert shell.run(workspace, "token", "revoke", "ci").returncode == 0
    with serving(workspace) as web:
        answer = ask(web, Authorization=f"Bearer {token}")
    assert answer.status == 401
    assert b"switchboard token new" in answer.body


@each_case("requested", ["POST /mcp", "GET /mcp", "GET /sse", "POST /messages", "GET /status"])
def test_a_token_in_the_address_is_not_taken(web: Web, requested: str) -> None:
    method, path = requested.split()
    body = LIST if method == "POST" else None
    answer = web.ask(method, f"{path}?token={web.token}", body, {"Authorization": None})
    assert answer.status == 401
    assert b"http.queryToken" in answer.body
    assert web.token.encode() not in answer.body
    assert b"queryToken" not in web.ask(method, path, body, {"Authorization": None}).body


def test_where_the_config_allows_it_the_token_may_be_in_the_address_and_is_not_logged(
    workspace: Path,
) -> None:
    configure(workspace, {"http": {"queryToken": True}})
    with serving(workspace, "--log-level", "debug") as web:
        assert ask(web, path=f"/mcp?token={web.token}", Authorization=None).status == 200
        assert ask(web, path="/mcp?token=wrong", Authorization=None).status == 401
        # A header that is there counts, even where the address would do.
        assert ask(web, path=f"/mcp?token={web.token}", Authorization="Bearer wrong").status == 401
        with web.socket() as broken:
            broken.sendall(f"GET /mcp?token={web.token} NONSENSE\r\n\r\n".encode())
            assert b" 400 " in broken.recv(1000)
    assert web.token not in web.log.read_text()


async def test_an_sse_client_with_the_token_in_its_address_can_post(workspace: Path) -> None:
    """The official SDK posts to the address of the `endpoint` event, and sends no headers of its own."""
    named = "ada's token+/&=%?#-0123456789"
    configure(workspace, {"http": {"queryToken": True, "tokens": {"ada": named}}})
    with serving(workspace) as web:
        for token in (web.token, named):
            address = f"{web.url}/sse?token={quote(token, safe='')}"
            async with Client(sse_client(address), mode="legacy") as client:
                assert (await client.list_tools()).tools == []
        with web.open("GET", "/sse") as stream:  # with the header, the address has no token
            endpoint = stream.event()
            assert endpoint is not None
            assert "token" not in endpoint.data


def test_a_token_in_the_address_is_in_no_record(workspace: Path, collector: Collector) -> None:
    """Neither in the log, the audit log, traces, metrics, the status, nor in what the dashboard shows."""
    configure(
        workspace,
        {
            "http": {"queryToken": True, "tokens": {"ada": ADA}},
            "audit": {"enabled": True},
            "telemetry": {"metrics": True, "otel": True},
        },
    )
    add_child(workspace, "gate", GATE)
    forms = [ADA, quote(ADA), quote(ADA, safe="").lower(), "".join(f"%{byte:02x}" for byte in ADA.encode())]
    env = {"XDG_CACHE_HOME": str(workspace / "cache"), **collector.environ}
    with serving(workspace, "--log-level", "debug", env=env) as web:
        for form in forms:
            message = modern("tools/call", call("echo", "hello"))
            answer = web.ask("POST", f"/mcp?token={form}", message, headers_of(message, Authorization=None))
            assert answer.status == 200
            assert web.ask("GET", f"/nowhere?token={form}").status == 404
            with web.socket() as broken:
                broken.sendall(f"GET /mcp?token={form} NONSENSE\r\n\r\n".encode())
                assert b" 400 " in broken.recv(1000)
        shown = [web.ask("GET", path) for path in (*DASHBOARD, "/status", "/metrics", "/health")]
        assert {answer.status for answer in shown} == {200}
    written = [
        file.read_bytes()
        for file in workspace.rglob("*")
        if file.is_file() and file.name != "switchboard.config.json"
    ]
    assert any(b'"ada"' in data for data in written)  # the audit log names who called
    traces = [str(span).encode() for _, span in collector.spans]
    assert traces
    for form in forms:
        everything = [*(answer.body for answer in shown), *written, *traces]
        assert not [data for data in everything if form.encode() in data]


def test_no_token_is_ever_logged(web: Web) -> None:
    for token in (web.token, ADA, BOB):
        assert ask(web, Authorization=f"Bearer {token}").status == 200
        ask(web, Authorization=f"Bearer {token}x")
    log = web.log.read_text()
    assert not any(token in log for token in (web.token, ADA, BOB))


def test_a_session_is_only_there_for_whoever_opened_it(web: Web) -> None:
    session = web.initialize(token=ADA)
    for stranger in (BOB, web.token):
        headers = {**session.headers, "Authorization": f"Bearer {stranger}"}
        assert web.post(request("tools/list"), headers).status == 404
        assert web.ask("GET", "/mcp", None, {**headers, "Accept": "text/event-stream"}).status == 404
        assert web.ask("DELETE", "/mcp", None, headers).status == 404
    assert session.ask("tools/list").status == 200


def test_a_session_of_the_older_transport_too(web: Web) -> None:
    with web.open("GET", "/sse", None, {"Authorization": f"Bearer {ADA}"}) as stream:
        endpoint = stream.event()
        assert endpoint is not None
        assert (
            web.ask("POST", endpoint.data, request("ping"), {"Authorization": f"Bearer {BOB}"}).status == 404
        )
        assert (
            web.ask("POST", endpoint.data, request("ping"), {"Authorization": f"Bearer {ADA}"}).status == 202
        )


def test_the_token_is_new_at_each_start_and_for_its_owner_alone(workspace: Path) -> None:
    tokens = []
    for _ in range(2):
        with serving(workspace) as web:
            tokens.append(web.token)
            folder = workspace / ".switchboard"
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert tokens[0] != tokens[1]
    assert min(map(len, tokens)) >= 43


def test_a_folder_made_by_hand_is_closed_to_others(workspace: Path) -> None:
    folder = workspace / ".switchboard"
    folder.mkdir()
    folder.chmod(0o755)
    with serving(workspace):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@each_case("loose", ["folder", "file", "link", "folder link"])
def test_files_that_others_can_read_are_refused(workspace: Path, tmp_path: Path, loose: str) -> None:
    folder, elsewhere = workspace / ".switchboard", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if loose == "folder link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir(mode=0o700)
    if loose == "folder":
        folder.chmod(0o777)
    elif loose == "file":
        (folder / "auth_token").write_text("old")
        (folder / "auth_token").chmod(0o640)
    elif loose == "link":
        (folder / "auth_token").symlink_to(elsewhere / "token")
    with start(workspace, "127.0.0.1:0", log=workspace / "log") as process:
        assert process.wait(PATIENCE_S) == 1
    result = (workspace / "log").read_text()
    assert ".switchboard" in result
    assert "Run: " in result
    assert list(elsewhere.iterdir()) == []


@each_case(
    ("tokens", "expected"),
    [
        ({"ada": "short"}, "http.tokens.ada"),
        ({"ada": "${NOT_SET_ANYWHERE}"}, "NOT_SET_ANYWHERE"),
        ({"ada": BOB, "bob": BOB}, "http.tokens.bob"),
    ],
)
def test_a_token_that_is_none_is_refused_at_the_start(
    workspace: Path, tokens: dict[str, str], expected: str
) -> None:
    configure(workspace, {"http": {"tokens": tokens}})
    with start(workspace, "127.0.0.1:0", log=workspace / "log") as process:
        assert process.wait(PATIENCE_S) in (1, 2)
    assert expected in (workspace / "log").read_text()


# --- names and pages -------------------------------------------------------------------------------------


@each_case(
    "host",
    [
        "evil.example.com",
        "evil.example.com:{port}",
        "127.0.0.1.evil.com",
        "",
        "0.0.0.0",
        "[::1].evil",
        "[::1]evil:{port}",
        "[::1",
        "localhost:{port}.evil.com",
        "localhost:",
        "evil.com@localhost",
        "localhost,evil.com",
    ],
)
@each_case("path", ["/mcp", "/health"])
def test_under_a_name_of_somebody_else_nothing_is_served(web: Web, host: str, path: str) -> None:
    method = "GET" if path == "/health" else "POST"
    body = None if method == "GET" else LIST
    answer = web.ask(method, path, body, {**headers_of(LIST), "Host": host.format(port=web.port)})
    assert answer.status == 421


@each_case("host", ["localhost", "LOCALHOST:{port}", "127.0.0.1", "[::1]:{port}", "gateway.internal:80"])
def test_under_its_own_names_it_is_served(web: Web, host: str) -> None:
    assert ask(web, Host=host.format(port=web.port)).status == 200


@each_case("hosts", [("evil.com", "localhost"), ("localhost", "evil.com"), ("localhost",) * 2])
def test_under_two_names_nothing_is_served(web: Web, hosts: tuple[str, ...]) -> None:
    with web.socket() as connection:
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        connection.sendall(f"GET /health HTTP/1.1\r\n{lines}\r\n".encode())
        assert b" 400 " in connection.recv(1000)


def test_without_a_name_nothing_is_served(web: Web) -> None:
    with web.socket() as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 421 " in connection.recv(1000)


@each_case(
    "origin",
    ["https://evil.example.com", "null", "", "http://localhost:1", PAGE + ".evil.com", "app.example.com"],
)
@each_case("method", ["POST", "GET", "OPTIONS"])
def test_a_page_of_another_origin_may_not_connect(web: Web, origin: str, method: str) -> None:
    body = LIST if method == "POST" else None
    answer = web.ask(method, "/mcp", body, {**headers_of(LIST), "Origin": origin})
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


@each_case("origin", [PAGE, "http://{host}:{port}"])
def test_a_page_that_may_connect_can_read_the_answer(web: Web, origin: str) -> None:
    origin = origin.format(host=web.host, port=web.port)
    answer = ask(web, Origin=origin)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
    wanted = {
        "Origin": origin,
        "Access-Control-Request-Headers": "authorization, mcp-method",
        "Authorization": None,
    }
    flight = web.ask("OPTIONS", "/mcp", None, wanted)
    assert flight.status == 204
    assert flight.headers["access-control-allow-headers"] == "authorization, mcp-method"
    assert ask(web, Origin=origin, Authorization=None).status == 401


# --- too much --------------------------------------------------------------------------------------------


def padded(size: int) -> bytes:
    """A request of so many bytes."""
    empty = json.dumps(LIST).encode()
    return empty[:-1] + b" " * (size - len(empty)) + b"}"


@each_case(("size", "status"), [(MIB, 200), (MIB + 1, 413), (3 * MIB, 413)])
@each_case("chunked", [False, True])
def test_a_body_beyond_the_limit_is_refused(web: Web, size: int, status: int, chunked: bool) -> None:
    body = padded(size)
    if not chunked:
        assert web.ask("POST", "/mcp", body, headers_of(LIST)).status == status
        return
    head = raw_post(web, LIST).partition(b"\r\n\r\n")[0]
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    with web.socket() as connection:
        connection.sendall(b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""]))
        connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert b" %d " % status in connection.recv(100)


@each_case("length", ["9" * 15, "9" * 40])
def test_a_body_that_is_only_announced_is_refused(web: Web, length: str) -> None:
    head = raw_post(web, LIST).partition(b"\r\n\r\n")[0]
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    with web.socket() as connection:
        connection.sendall(b"\r\n".join([*lines, f"Content-Length: {length}".encode(), b"", b""]))
        assert connection.recv(100).split()[1] in (b"413", b"400")


@each_case(
    "more",
    [
        [b"X-Filler: " + b"x" * 100_000],
        [b"X-Filler-%d: x" % number for number in range(5_000)],
        [b"Cookie: " + b"y" * 40_000],
    ],
)
def test_a_flood_of_headers_is_refused(web: Web, more: list[bytes]) -> None:
    head, _, body = raw_post(web, LIST).partition(b"\r\n\r\n")
    with web.socket() as connection:
        connection.sendall(b"\r\n".join([head, *more]) + b"\r\n\r\n" + body)
        assert b" 431 " in connection.recv(100)
    assert ask(web).status == 200


def test_a_head_without_end_is_cut_off(web: Web) -> None:
    with web.socket() as connection:
        connection.sendall(b"\r\n\r\nGET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            connection.sendall((b"X-More: " + b"x" * 1000 + b"\r\n") * 10_000)


@each_case(
    "odd",
    [
        b"NONSENSE\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nHost : x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
    ],
)
def test_what_is_no_http_is_refused(web: Web, odd: bytes) -> None:
    with web.socket() as connection:
        connection.sendall(odd)
        assert b" 400 " in connection.recv(1000)
    assert ask(web).status == 200


def test_a_thousand_idle_connections_keep_nobody_out(web: Web) -> None:
    with ExitStack() as stack:
        for number in range(1_000):
            connection = stack.enter_context(web.socket())
            if number % 2:
                connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: loc")
        session = web.initialize()
        assert text_of(session.result("tools/call", call("echo", "still here"))) == "still here"
        with session.listen() as stream:
            assert stream.status == 200
    process = psutil.Process(web.process.pid)
    assert process.num_fds() < 1_000


def test_a_client_that_does_not_read_is_cut_off_and_costs_nobody_anything(web: Web) -> None:
    process = psutil.Process(web.process.pid)
    before = process.memory_info().rss
    message = modern("tools/call", call("blow", str(8 * MIB)), token=1)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((web.host, web.port))
        connection.sendall(raw_post(web, message))
        # The child does one thing after the other: when it answers this, it has said all.
        session = web.initialize()
        assert text_of(session.result("tools/call", call("echo", "next"))) == "next"
        assert process.memory_info().rss - before < 6 * MIB
        connection.settimeout(PATIENCE_S)
        with suppress(ConnectionError):  # its end may come with or without an error
            while connection.recv(MIB):
                pass


def test_a_session_that_nobody_listens_to_keeps_little(web: Web) -> None:
    """A stream that was lost is kept for its client, but not all of it."""
    process = psutil.Process(web.process.pid)
    before = process.memory_info().rss
    session = web.initialize()
    with session.open("tools/call", call("blow", str(8 * MIB), token=1)) as stream:
        first = stream.event()
        assert first is not None
    assert text_of(session.result("tools/call", call("echo", "next"), id=2)) == "next"
    assert process.memory_info().rss - before < 6 * MIB
    with session.listen(first.id) as again:
        assert text_of(again.events()[-1].json["result"]) == "blown"


def test_more_sessions_than_may_be_end_the_quietest(workspace: Path) -> None:
    configure(workspace, {"http": {"maxSessions": 3}})
    with serving(workspace) as web:
        sessions = [web.initialize() for _ in range(3)]
        assert sessions[0].ask("ping").status == 200
        sessions.append(web.initialize())
        assert [session.ask("ping").status for session in sessions] == [200, 404, 200, 200]


def test_a_client_that_opens_sessions_without_end_ends_its_own(workspace: Path) -> None:
    configure(workspace, {"http": {"maxSessions": 3, "tokens": {"bob": BOB}}})
    with serving(workspace) as web:
        quiet = web.initialize()
        flood = [web.initialize(token=BOB) for _ in range(5)]
        assert quiet.ask("ping").status == 200
        assert [session.ask("ping").status for session in flood] == [404, 404, 404, 200, 200]
        another = web.initialize()
        assert another.ask("ping").status == 200, "a client without a session gets the place of another one"


def test_a_session_that_nobody_uses_ends(workspace: Path) -> None:
    configure(workspace, {"http": {"sessionIdleMs": 1}})
    with serving(workspace) as web:
        web.initialize_only()
        while web.ask("GET", "/health").json["sessions"]:
            pass


def test_nothing_of_the_environment_is_told(web: Web) -> None:
    result = web.ask("GET", "/health").body.decode()
    assert str(web.workspace) not in result
    assert os.environ.get("HOME", "/root") not in result
