"""The secrets gate: plants secrets wherever one can stand, exercises everything, and greps all that comes out.

What a child answers to a call is data, and goes to the host as it came; every other output must be free of them.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from tests.cases import each_case
from tests.children.leaky import disguises
from tests.e2e import command_server, shell
from tests.e2e.host import Json, switchboard
from tests.e2e.web import call, request, serving
from tests.e2e.workspaces import PYTHON, REPO, add_child, configure, write_child

# One run of everything serves all tests here.

SECRETS = {
    "env, by its name": "env/Secret+4711=x",
    "env, by its looks": "plainly-9f8e7d6c5b",
    "env, from a variable": 'var"Secret\\4712',
    "argument, by its option": "option-Secret-4713",
    "argument, from a variable": "arg&Secret?4714",
    "header": "header-Secret-4715",
    "address, password": "address-Secret-4716",
    "address, query": "query/Secret 4717",
    "token from a variable": "named-Token-Secret-4718",
    "masked argument": "masked-pin-4719",
    "masked path": "4929-1111-4720",
}
LEAKY = REPO / "tests" / "children" / "leaky.py"
ARGS = {"pin": SECRETS["masked argument"], "card": {"number": SECRETS["masked path"]}, "note": "harmless"}
ENVIRON = {
    "SECRET_OF_ENV": SECRETS["env, from a variable"],
    "SECRET_OF_ARGS": SECRETS["argument, from a variable"],
    "SECRET_OF_HTTP": SECRETS["token from a variable"],
    "SECRET_OF_HEADER": SECRETS["header"],
}


class Mirror(BaseHTTPRequestHandler):
    """A remote server that fails and repeats what it was sent."""

    def do_POST(self) -> None:
        seen = [SECRETS[name] for name in ("header", "address, password", "address, query")]
        told = f"{self.path} {dict(self.headers)} " + " | ".join(
            line for one in seen for line in disguises(one)
        )
        self.send_response(500)
        self.send_header("Content-Length", str(len(told.encode())))
        self.end_headers()
        self.wfile.write(told.encode())

    do_GET = do_DELETE = do_POST  # noqa: N815 - so the base class calls them

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def mirror() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def furnish(workspace: Path, port: int) -> None:
    """Children that leak, a remote one that repeats, and a config with a secret in every place there is."""
    env = {
        "PLANTED_TOKEN": SECRETS["env, by its name"],
        "PLANTED_PLAIN": SECRETS["env, by its looks"],
        "PLANTED_VARIABLE": "${SECRET_OF_ENV}",
    }
    for mode in ("serve", "refuse", "die"):
        words = [f"--password={SECRETS['argument, by its option']}", "${SECRET_OF_ARGS}"]
        add_child(workspace, mode, [*PYTHON, str(LEAKY), mode, *words], env=env)
    password = quote(SECRETS["address, password"], safe="")
    query = quote_plus(SECRETS["address, query"])
    url = f"http://me:{password}@127.0.0.1:{port}/mcp?api_key={query}"
    headers = {"Authorization": "Bearer ${SECRET_OF_HEADER}", "X-Key": SECRETS["header"]}
    write_child(workspace, "remote", {"name": "remote", "type": "http", "url": url, "headers": headers})
    masks = {"redactArgs": ["pin", "card.number"]}
    settings = {
        "suites": {"serve": masks},
        "http": {"tokens": {"alice": "${SECRET_OF_HTTP}"}},
        "audit": {"enabled": True},
    }
    configure(workspace, settings)


def exercise(suites: list[str]) -> Iterator[tuple[str, Json]]:
    """What a host asks, each with its arguments."""
    for suite in suites:
        yield suite, {"action": "introspect"}
        yield suite, {"action": "call", "subtool": "echo", "args": ARGS}
        yield suite, {"action": "call", "subtool": "leak_error", "args": ARGS}
        yield suite, {"action": "call", "subtool": "no_such", "args": ARGS}
        yield suite, {"action": "call", "subtool": "crash", "args": ARGS}
        yield suite, {"action": "call", "subtool": "echo", "args": "{broken"}


def through_pipes(workspace: Path, env: dict[str, str], style: str) -> dict[str, str]:
    """A host over stdio, with everything logged. The results of `echo` are data."""
    told = []
    with switchboard(workspace, "--log-level", "debug", "--log-format", style, env=env) as host:
        host.initialize()
        suites = host.tool_names()
        told.append(json.dumps(suites))
        for suite, arguments in exercise(suites):
            answer = host.request("tools/call", {"name": suite, "arguments": arguments})
            if arguments.get("subtool") != "echo" or suite != "serve_suite":
                told.append(json.dumps(answer))
        host.send({"jsonrpc": "2.0", "id": 99, "method": "nothing/here", "params": {"x": 1}})
        told.append(json.dumps(host.answer(99)))
        host.close()
        return {f"{style} host": "\n".join(told), f"{style} log": host.stderr}


def through_http(workspace: Path, env: dict[str, str]) -> dict[str, str]:
    """The same over HTTP."""
    told = []
    with serving(workspace, "--log-level", "debug", env=env) as web:
        told.append((workspace / ".switchboard" / "server_info.json").read_text())
        told.append(
            web.post(request("initialize"), {"Authorization": f"Bearer wrong-{web.token[:-3]}"}).body.decode()
        )
        session = web.initialize(token=SECRETS["token from a variable"])
        for subtool in ("leak_error", "crash"):
            params = call(subtool, suite="serve_suite")
            params["arguments"]["args"] = ARGS
            told.append(json.dumps(session.result("tools/call", params)))
        told.append(json.dumps(session.result("tools/call", call("echo", suite="remote_suite"))))
        token = web.token
        log = web.log
    return {"http host": "\n".join(told), "http log": log.read_text(), "token of the start": token}


def through_commands(workspace: Path, env: dict[str, str]) -> dict[str, str]:
    """Every command that shows something, for people and for programs."""
    asked = [
        ["list"],
        ["introspect", "serve"],
        ["introspect", "refuse"],
        ["call", "serve", "leak_error", json.dumps(ARGS)],
        ["call", "serve", "crash", json.dumps(ARGS)],
        ["call", "remote", "echo"],
        ["doctor"],
        ["--dry-run"],
        ["status"],
        ["lock"],
        ["lock", "--check"],
        ["approve", "serve"],
        ["tokens"],
        ["audit", "verify"],
        ["audit", "show"],
        ["evidence"],
        ["evidence", "--verify"],
    ]
    outputs = {}
    for arguments in asked:
        for more in ([], ["--json", "--log-level", "debug"]):
            ran = command_server.run([*arguments, *more], workspace, env)
            outputs[" ".join((*arguments[:2], *more[:1]))] = ran.stdout + ran.stderr
    return outputs


def files(workspace: Path) -> dict[str, str]:
    """All that was written, but for what people wrote and what is secret by design."""
    kept = {"audit-salt", "auth_token", ".mcp.json", "switchboard.config.json", "stderr.log"}
    return {
        str(path.relative_to(workspace)): path.read_bytes().decode("utf-8", "replace")
        for path in sorted(workspace.rglob("*"))
        if path.is_file() and path.name not in kept
    }


@pytest.fixture(scope="module")
def outputs(mirror: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Everything that came out, by where."""
    workspace = tmp_path_factory.mktemp("gate")
    furnish(workspace, mirror)
    env = {**os.environ, **ENVIRON, "XDG_CACHE_HOME": str(workspace / "cache")}
    found = {}
    for style in ("text", "json"):
        found.update(through_pipes(workspace, env, style))
    found.update(through_http(workspace, env))
    found.update(through_commands(workspace, env))
    found.update(files(workspace))
    return found


def forms(secret: str) -> set[str]:
    """Every way in which a secret would give itself away; worked out here once more, apart from the redactor."""
    data = secret.encode()
    found = {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        data.hex(),
        data.hex().upper(),
    }
    for text in (secret, quote_plus(secret)):
        escaped = text
        for _ in range(3):
            escaped = json.dumps(escaped)[1:-1]
            found.add(escaped)
    for shift in range(3):
        middle = base64.b64encode(b"x" * shift + data)[4:-4].decode()
        found |= {middle, middle.replace("+", "-").replace("/", "_")}
    # A piece is a leak too.
    found |= {secret[: len(secret) * 2 // 3], secret[len(secret) // 3 :]}
    return found


@each_case("name", SECRETS)
def test_no_planted_secret_is_in_any_output(outputs: dict[str, str], name: str) -> None:
    token = outputs["token of the start"]
    assert token
    leaks = [
        (where, form, text[max(0, text.find(form) - 60) : text.find(form) + 60])
        for where, text in outputs.items()
        for form in forms(SECRETS[name])
        if form in text
    ]
    assert leaks == []


def test_the_token_of_a_start_is_in_no_output(outputs: dict[str, str]) -> None:
    token = outputs["token of the start"]
    found = {where for where, text in outputs.items() for form in forms(token) if form in text}
    assert found == {"token of the start"}


def test_the_gate_would_notice(outputs: dict[str, str]) -> None:
    for secret in SECRETS.values():
        for line in disguises(secret):
            assert any(form in line for form in forms(secret)), line
    for where in (
        "text log",
        "json log",
        "text host",
        "json host",
        "http log",
        "http host",
        "doctor",
        "--dry-run",
    ):
        assert "[redacted]" in outputs[where], where
    assert any(name.startswith(".switchboard/audit/audit-") for name in outputs)
    assert any(name.startswith("artifacts/") for name in outputs)
    assert '"kind":"call"' in outputs[".switchboard/audit/audit-000001.jsonl"]


def test_what_a_child_answers_passes_as_it_came(mirror: int, workspace: Path) -> None:
    furnish(workspace, mirror)
    with switchboard(workspace, env={**os.environ, **ENVIRON}) as host:
        host.initialize()
        (block,) = host.call("serve_suite", "echo", **ARGS)["content"]
    assert json.loads(block["text"]) == ARGS


@each_case("size", [100, 2_500, 30_000])
def test_a_secret_of_any_length_is_masked_in_what_a_child_writes_to_stderr(
    workspace: Path, size: int
) -> None:
    secret = "Ab1" * (size // 3)
    code = (
        "import os, sys; v = os.environ['SIGNING_KEY']; "
        "[print('x', form, file=sys.stderr, flush=True) for form in (v, v.encode().hex())]; sys.exit(3)"
    )
    entry = {"command": PYTHON[0], "args": [*PYTHON[1:], "-c", code], "env": {"SIGNING_KEY": secret}}
    configure(workspace, {"mcpServers": {"failing": entry}})
    for more in ((), ("--log-level", "debug", "--log-format", "json")):
        done = shell.run(workspace, "--dry-run", *more)
        output = done.stdout + done.stderr
        assert "x [redacted]" in output
        for form in (secret, secret.encode().hex()):
            assert form[:12] not in output
            assert form[-12:] not in output
