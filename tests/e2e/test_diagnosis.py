"""What is said of a server that fails: its own cause, whose fault it is, and a remedy that fits.

Each child behaves as a published server does, with its own words.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.shell import answered, parsed, run
from tests.e2e.test_remote_children import child
from tests.e2e.workspaces import MOCK_CHILD, PYTHON, REPO, add_child, configure, scripted

NETWORK = "could not reach a service"
OTHER = (("one", "two"), ("two", "one"))


CALL = {"action": "call", "subtool": "echo", "args": {"message": "x"}}


def failure_alone(workspace: Path, code: str, **env: str) -> Json:
    """Return the failure of a child with variables of its own."""
    add_child(workspace, "sick", scripted(code), env=env)
    with switchboard(workspace) as host:
        return host.failure("sick_suite", **CALL)


def refusing(method: str, code: int, message: str) -> str:
    """The code of a child that answers one method with an error."""
    return f"""
        class Refusing(Child):
            def receive(self, message, line):
                if message.get("method") == {method!r}:
                    send({{"id": message["id"], "error": {{"code": {code}, "message": {message!r}}}}})
                else:
                    super().receive(message, line)

        complain("its own log")
        Refusing().serve()
    """


CALL_ERRORS = [
    (-32602, "Invalid arguments: 'query' is required", "child_error", False, "Correct the arguments"),
    (-32602, "connect ECONNREFUSED is no URL", "child_error", False, "Correct the arguments"),
    (-32603, "TypeError: x is not a function", "child_error", False, "The server failed by itself"),
    (-32000, "Unauthorized: bad API key", "child_error", False, "The server failed by itself"),
    (-32603, "fetch failed", "child_network_error", True, NETWORK),
    (-32603, "getaddrinfo ENOTFOUND api.example.com", "child_network_error", True, NETWORK),
    (-32603, "All connection attempts failed", "child_network_error", True, NETWORK),
    (
        -32000,
        "HTTPSConnectionPool(host='x', port=443): Max retries exceeded with url: /",
        "child_network_error",
        True,
        NETWORK,
    ),
    (-32603, "dial tcp: lookup kubernetes: no such host", "child_network_error", True, NETWORK),
]
HANDSHAKE_ERRORS = [
    (
        "initialize",
        "21st MCP endpoint unreachable (https://21st.dev/api/mcp): fetch failed",
        "child_network_error",
        NETWORK,
    ),
    ("tools/list", "fetch failed", "child_network_error", NETWORK),
    (
        "initialize",
        "Internal error: Received request before the storage token was set",
        "child_protocol",
        "Fix what it names",
    ),
    ("tools/list", "KeyError: 'KBC_STORAGE_TOKEN'", "child_protocol", "Fix what it names"),
]
# As kubernetes-mcp-server does: the error, then a page of usage.
USAGE = """
    complain("Error: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST must be defined")
    for number in range(60):
        complain(f"      --flag-{number} string   does something")
    sys.exit(1)
"""
UNCONNECTED = (
    "complain('TypeError: fetch failed'); complain('  [cause]: getaddrinfo ENOTFOUND x.com'); sys.exit(1)"
)
LINES = [0, 1, 9, 10, 11, 20, 29, 30]
ENDS = ["\\n", ""]


def complaining(count: int) -> str:
    """The code of a child that writes so many lines to stderr and exits."""
    return f"[complain(f'line {{number}}') for number in range({count})]; sys.exit(1)"


def printing(end: str) -> str:
    """The code of a child that writes two lines to stdout and exits."""
    return f"write(b'usage: server FOLDER\\nerror: a folder is required{end}'); sys.exit(2)"


CODES = [
    *(refusing("tools/call", code, message) for code, message, *_ in CALL_ERRORS),
    *(refusing(method, -32603, message) for method, message, *_ in HANDSHAKE_ERRORS),
    *map(complaining, LINES),
    *map(printing, ENDS),
    USAGE,
    UNCONNECTED,
]


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One Switchboard with all children that fail."""
    workspace = tmp_path_factory.mktemp("sick")
    for number, code in enumerate(CODES):
        add_child(workspace, f"sick-{number}", scripted(code))
    with switchboard(workspace, env={**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}) as host:
        host.initialize()
        yield host


def failure_of(sick: Host, code: str) -> Json:
    return sick.failure(f"sick-{CODES.index(code)}_suite", **CALL)


# --- errors of a call ------------------------------------------------------------------------------------


@each_case(("code", "message", "kind", "retryable", "hint"), CALL_ERRORS)
def test_the_hint_of_an_error_fits_its_cause(
    sick: Host, code: int, message: str, kind: str, retryable: bool, hint: str
) -> None:
    error = failure_of(sick, refusing("tools/call", code, message))
    assert (error["code"], error["retryable"]) == (kind, retryable)
    assert message in error["message"]
    assert hint in error["hint"]
    assert ("schema" in error) is (code == -32602)


# --- errors in the handshake -----------------------------------------------------------------------------


@each_case(("method", "message", "kind", "hint"), HANDSHAKE_ERRORS)
def test_an_error_that_a_server_reports_in_its_handshake_does_not_make_it_no_mcp_server(
    sick: Host, method: str, message: str, kind: str, hint: str
) -> None:
    error = failure_of(sick, refusing(method, -32603, message))
    assert error["code"] == kind
    assert message in error["message"]
    assert hint in error["hint"]
    assert "MCP server" not in error["hint"]
    assert error["stderr"] == ["its own log"]


# --- what a child wrote before it exited -----------------------------------------------------------------


def test_a_cause_that_is_printed_first_is_kept(sick: Host) -> None:
    error = failure_of(sick, USAGE)
    lines = error["stderr"]
    assert lines[0].startswith("Error: unable to load in-cluster configuration")
    assert "(31 lines left out)" in lines
    assert lines[-1].startswith("--flag-59")
    assert len(lines) == 31


@each_case("count", LINES)
def test_a_short_stderr_is_kept_whole_and_once(sick: Host, count: int) -> None:
    assert failure_of(sick, complaining(count)).get("stderr", []) == [
        f"line {number}" for number in range(count)
    ]


@each_case("end", ENDS)
def test_what_is_written_to_stdout_before_an_exit_is_quoted(sick: Host, end: str) -> None:
    error = failure_of(sick, printing(end))
    assert error["code"] == "child_start_failed"
    assert "'usage: server FOLDER', 'error: a folder is required'" in error["message"]


def test_secrets_in_what_is_written_to_stdout_are_masked(workspace: Path) -> None:
    code = "import os; write(('bad key ' + os.environ['API_KEY'] + '\\n').encode()); sys.exit(2)"
    error = failure_alone(workspace, code, API_KEY="hunter2-hunter2")
    assert "bad key" in error["message"]
    assert "hunter2" not in json.dumps(error)


def test_a_start_that_fails_for_lack_of_a_network_says_so(sick: Host) -> None:
    assert NETWORK in failure_of(sick, UNCONNECTED)["hint"]


# --- run it by hand --------------------------------------------------------------------------------------


def test_the_command_to_run_by_hand_has_the_variables_and_no_secret(workspace: Path) -> None:
    env = {
        "AWS_REGION": "us-east-1",
        "API_KEY": "hunter2-hunter2",
        "FROM": "${OUTSIDE}",
        "NOTE": "two words",
    }
    add_child(workspace, "sick", scripted("sys.exit(1)"), env=env)
    out = answered(run(workspace, "doctor", OUTSIDE="sesame-0123456789"), 1)
    assert "AWS_REGION=us-east-1 API_KEY=… FROM=\"${OUTSIDE}\" NOTE='two words' " in out
    assert "hunter2" not in out
    assert "sesame" not in out


def test_an_ordinary_value_is_not_masked_in_what_a_child_says(workspace: Path) -> None:
    code = "import os; complain('no bucket in ' + os.environ['AWS_REGION']); sys.exit(1)"
    assert failure_alone(workspace, code, AWS_REGION="us-east-1")["stderr"] == ["no bucket in us-east-1"]


# --- one host --------------------------------------------------------------------------------------------


def test_a_host_is_explained_with_what_it_would_be_shown(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    found = parsed(run(workspace, "doctor", "--host", "codex", "--json"), 0)
    assert (found["host"]["title"], found["host"]["defersTools"], found["isOn"]) == ("Codex", True, False)
    (choice,) = found["choices"]
    assert (choice["child"], choice["shown"], choice["tools"]) == ("mock", "direct", found["tools"])
    configure(workspace, {"exposure": "auto"})
    shown = answered(run(workspace, "doctor", "--host", "claude-code"), 0)
    assert "suite, loaded" in shown
    assert "Exposure `auto` is on" in shown
    assert "nothing is known of this host" in run(workspace, "doctor", "--host", "bogus").stderr


# --- remote servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transport", "wrong", "right"),
    [("streamable", "sse", "http"), ("json", "sse", "http"), ("sse", "http", "sse")],
)
def test_a_wrong_type_is_found_out_and_named(workspace: Path, transport: str, wrong: str, right: str) -> None:
    with child("shop.py", transport) as url:
        config = {"mcpServers": {"shop": {"url": url, "type": wrong}}, "timeouts": {"rpcMs": 10_000}}
        path = configure(workspace, config)
        (found,) = parsed(run(workspace, "doctor", "--json"), 1)["children"]
    (finding,) = found["findings"]
    assert f'{path}: mcpServers.shop.type is "{wrong}"' in finding["message"]
    assert finding["remedy"] == f'Set mcpServers.shop.type to "{right}".'


@contextmanager
def refusing_hosts(status: int, body: bytes) -> Iterator[str]:
    """A server that accepts requests for another host only, as playwright-mcp does."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the name that the base class looks for

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


@each_case(
    ("status", "body"),
    [
        (403, b"Access is only allowed at localhost:8931"),
        (403, b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Invalid Host: 127.0.0.1"},"id":null}'),
        (421, b"Invalid Host header"),
    ],
)
def test_a_refusal_by_host_is_explained(workspace: Path, status: int, body: bytes) -> None:
    with refusing_hosts(status, body) as url:
        configure(workspace, {"mcpServers": {"web": {"url": url}}})
        (found,) = parsed(run(workspace, "doctor", "--json"), 1)["children"]
    (finding,) = found["findings"]
    assert "does not accept requests for the host in `url`" in finding["message"]
    assert "localhost instead of 127.0.0.1" in finding["remedy"]
    assert "--allowed-hosts" in finding["remedy"]


def test_another_refusal_is_none_by_host(workspace: Path) -> None:
    with refusing_hosts(403, b"This account may not use the API") as url:
        configure(workspace, {"mcpServers": {"web": {"url": url}}})
        (found,) = parsed(run(workspace, "doctor", "--json"), 1)["children"]
    assert "forbids this request" in found["findings"][0]["message"]


# --- texts in another order at each start ------------------------------------------------------------------


def test_lock_check_recognises_texts_in_another_order_and_names_the_cure(workspace: Path) -> None:
    # As mcp-shell-server and mcp-atlassian do: they print a set.
    code = """
        import os
        class Unordered(Child):
            def page(self, cursor):
                allowed = ", ".join({"ls", "cat", "pwd", "echo", "grep", "find", "head", "tail", "wc"})
                return {"tools": [{**tool("echo"), "description": "Allowed commands: " + allowed}]}
        Unordered().serve()
    """
    add_child(workspace, "shell", scripted(code))
    answered(run(workspace, "lock", PYTHONHASHSEED="1"))
    out = answered(run(workspace, "lock", "--check", PYTHONHASHSEED="2"), 1)
    assert "differs in the order of its words only" in out
    assert '"PYTHONHASHSEED": "0"' in out
    add_child(workspace, "shell", scripted(code), env={"PYTHONHASHSEED": "0"})
    answered(run(workspace, "lock", "--accept", "shell", PYTHONHASHSEED="1"))
    answered(run(workspace, "lock", "--check", PYTHONHASHSEED="2"))


# --- extensions ------------------------------------------------------------------------------------------


def test_extensions_that_are_not_announced_are_in_doctor_and_status(workspace: Path) -> None:
    peculiar = [*PYTHON, str(REPO / "tests" / "children" / "peculiar.py")]
    for name in ("one", "two"):
        add_child(workspace, name, peculiar)
    found = parsed(run(workspace, "doctor", "--json"))
    expected = {
        name: {"names": ["x-mode"], "reason": f"'{other}' declares extensions too"} for name, other in OTHER
    }
    shown = {child["child"]: child.get("extensionsNotAnnounced") for child in found["children"]}
    assert {name: shown[name] for name in expected} == expected
    known = {child["child"]: child for child in parsed(run(workspace, "status", "--json"))["children"]}
    assert {name: known[name]["extensionsNotAnnounced"] for name in expected} == expected
    text = run(workspace, "status").stdout
    assert (
        "two_suite: 1 extension is not announced to hosts, since 'one' declares extensions too: x-mode"
        in text
    )
