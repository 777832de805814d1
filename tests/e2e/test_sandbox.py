"""Children in sandboxes, through the real program: what they cannot do, and what the model and the user are told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.host import SWITCHBOARD, switchboard
from tests.e2e.servers import Servers
from tests.e2e.shell import answered, parsed, run
from tests.e2e.web import serving
from tests.e2e.workspaces import REPO, add_child, configure

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux")
SERVER = Path(__file__).parents[1] / "children" / "runs_code.py"


@pytest.fixture
def confined(workspace: Path) -> Path:
    """A workspace with a child in the sandbox `workspace`."""
    add_child(workspace, "code", [sys.executable, str(SERVER)])
    configure(workspace, {"suites": {"code": {"sandbox": {"network": ["allowed.example"]}}}})
    (workspace / ".git").mkdir(exist_ok=True)
    return workspace


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder that is not in /tmp, of which every child has its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def execute(workspace: Path, home: Path, code: str, exit_code: int = 1) -> str:
    done = run(workspace, "call", "code", "run", json.dumps({"code": code}), HOME=str(home))
    assert done.returncode == exit_code, done.stderr
    return done.stdout + done.stderr


def test_a_refused_file_is_named_with_the_setting_that_allows_it(confined: Path, home: Path) -> None:
    secret = home / ".netrc"
    secret.write_text("secret")
    text = execute(confined, home, f"open({str(secret)!r})")
    assert f"does not let it use {secret}" in text
    assert f"add `{secret}` to suites.code.sandbox.files.read" in text


def test_a_protected_file_stays_and_a_refused_host_is_named(confined: Path, home: Path) -> None:
    text = execute(confined, home, f"open({str(confined / '.git' / 'config')!r}, 'w')")
    assert "change suites.code.sandbox.files.protect" in text
    assert not (confined / ".git" / "config").exists()
    text = execute(confined, home, "import socket; socket.create_connection(('refused.example', 443))")
    assert "add `refused.example` to suites.code.sandbox.network" in text


def test_it_works_where_it_may(confined: Path, home: Path) -> None:
    text = execute(
        confined,
        home,
        f"open({str(confined / 'made')!r}, 'w').write('x'); import os; print(os.environ['HOME'])",
        0,
    )
    assert (confined / "made").read_text() == "x"
    assert "/sandbox/" in text


def test_commands_show_the_sandbox_and_its_promises(confined: Path) -> None:
    status = parsed(run(confined, "status", "--json"))
    assert [child["sandbox"] for child in status["children"]] == ["workspace"]
    shown = parsed(run(confined, "sandbox", "show", "code", "--json"))
    report: dict[str, Any] = shown["children"][0]
    assert {"files", "protect", "network", "others"} <= {promise["name"] for promise in report["promises"]}
    assert str(confined.resolve()) in report["write"]
    text = answered(run(confined, "sandbox", "show", "code"))
    assert "reaches only the listed hosts" in text


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_learning_proposes_what_a_child_has_used(confined: Path, home: Path) -> None:
    (home / ".learned").mkdir()
    code = f"open({str(home / '.learned' / 'file')!r}, 'w')"
    arguments = ("--call", "run", "--args", json.dumps({"code": code}), "--json", "--save")
    if shutil.which("strace"):  # it would run without a sandbox, and nobody is there to allow it
        refused = run(confined, "sandbox", "learn", "code", *arguments, HOME=str(home))
        assert refused.returncode == 2
        assert "WITHOUT a sandbox" in refused.stderr
        assert not (home / ".learned" / "file").exists()
    learned = parsed(run(confined, "sandbox", "learn", "code", "--yes", *arguments, HOME=str(home)))
    sandbox = learned["proposal"]["suites"]["code"]["sandbox"]
    assert sandbox == {
        "preset": "workspace",
        "files": {"write": ["${home}/.learned"]},
        "processes": False,
    }
    explained = {(line["setting"], line["value"]) for line in learned["reasons"]}
    assert explained == {
        ("preset", "workspace"),
        ("files.write", "${home}/.learned"),
        ("processes", "false"),
    }
    assert (
        json.loads((confined / "switchboard.config.json").read_text())["suites"]["code"]["sandbox"] == sandbox
    )


def test_a_child_that_cannot_start_in_its_sandbox_says_why(workspace: Path, home: Path) -> None:
    (home / ".needed").mkdir()
    code = f"import os; os.listdir({str(home / '.needed')!r})"
    add_child(workspace, "broken", [sys.executable, "-c", code])
    configure(workspace, {"sandbox": "workspace"})
    text = run(workspace, "call", "broken", "x", HOME=str(home)).stderr
    assert f"does not let it use {home / '.needed'}" in text


# As a container's filter does: no user namespaces and no Landlock. Then the command.
CONTAINER = """
import ctypes, os, struct, sys
unshare, clone = (272, 56) if os.uname().machine == "x86_64" else (97, 220)
denied = {unshare: 1, 435: 38, 444: 38}  # and clone3, whose flags a filter cannot see, and Landlock
lines = [(0x20, 0, 0, 0)]
for number, error in denied.items():
    lines += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error)]
# A clone with any flag for a new namespace, as bubblewrap makes one.
lines += [(0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000), (0x06, 0, 0, 0x50001)]
lines += [(0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_container_without_landlock_and_namespaces_is_said_and_behaves_as_configured(
    confined: Path, home: Path
) -> None:
    def inside(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CONTAINER, *SWITCHBOARD, *arguments]
        env = {**os.environ, "HOME": str(home)}
        return subprocess.run(command, cwd=confined, env=env, capture_output=True, text=True, check=False)

    shown = json.loads(inside("sandbox", "show", "code", "--json").stdout)
    assert (shown["system"]["landlock"], shown["system"]["user"], shown["system"]["mount"]) == (
        0,
        False,
        False,
    )
    broken = {promise["name"] for promise in shown["children"][0]["promises"] if promise.get("why")}
    assert {"files", "protect", "network", "limits"} <= broken
    doctor = inside("doctor").stdout
    assert "The sandbox of code does not keep all it promises here" in " ".join(doctor.split())
    question = ("call", "code", "run", json.dumps({"code": "print('it runs')"}))
    assert "it runs" in inside(*question).stdout
    configure(confined, {"suites": {"code": {"sandbox": {"preset": "workspace", "required": True}}}})
    refused = inside(*question)
    assert refused.returncode == 1
    assert "requires its sandbox, and this system cannot keep all of it" in refused.stderr


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/usr/bin/python3.11") or sys.version_info[:2] != (3, 11),
    reason="needs root to become another user, and a Python that this user may run",
)
def test_an_unprivileged_user_gets_every_promise() -> None:
    nobody = 65534
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        workspace, home = Path(folder) / "workspace", Path(folder) / "home"
        for path in (workspace, home):
            path.mkdir()
        (home / "secret").write_text("secret")
        shutil.copy(SERVER, workspace)
        add_child(workspace, "code", ["/usr/bin/python3.11", str(workspace / SERVER.name)])
        configure(workspace, {"sandbox": {"preset": "workspace", "required": True}})
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, nobody, nobody)
        libraries = f"{REPO / 'src'}:{Path(msgspec.__file__).parents[1]}"
        env = {"PATH": os.defpath, "HOME": str(home), "PYTHONPATH": libraries}

        def as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = ["/usr/bin/python3.11", "-m", "switchboard_mcp", *arguments]
            return subprocess.run(
                command, cwd=workspace, env=env, capture_output=True, text=True, check=False, user=nobody,
                group=nobody, extra_groups=[],
            )  # fmt: skip

        shown = json.loads(as_nobody("sandbox", "show", "code", "--json").stdout)
        assert not [promise for promise in shown["children"][0]["promises"] if promise.get("why")]
        code = f"import os; print(open('/proc/self/status').read()); open({str(home / 'secret')!r})"
        done = as_nobody("call", "code", "run", json.dumps({"code": code}))
        assert f"does not let it use {home / 'secret'}" in done.stdout + done.stderr, done


@pytest.mark.parametrize("name", Servers.names)
def test_published_servers_work_in_a_workspace(name: str, servers: Servers, workspace: Path) -> None:
    add_child(workspace, name, servers.command(name), env=servers.env(name, "child"))
    sandbox = {"preset": "workspace", "network": "none", "files": {"write": [str(servers.folder)]}}
    configure(workspace, {"suites": {name: {"sandbox": sandbox}}})
    with switchboard(workspace) as host:
        host.initialize()
        for call in servers.calls(name):
            arguments = {"action": "call", "subtool": call.subtool, "args": call.args}
            asked = host.ask("tools/call", {"name": f"{name}_suite", "arguments": arguments})
            decoded = json.loads(host.raw_answer(asked).result)
            assert decoded.get("isError", False) == call.error, decoded
            assert tuple(block["type"] for block in decoded["content"][: len(call.blocks)]) == call.blocks


def test_what_is_refused_is_counted_shown_and_audited(confined: Path, home: Path) -> None:
    suites = {"code": {"sandbox": {"network": ["allowed.example"]}}}
    configure(confined, {"audit": {"enabled": True}, "suites": suites})
    secret = home / ".netrc"
    secret.write_text("secret")
    with serving(confined, env={**os.environ, "HOME": str(home)}) as web:
        host = web.initialize()

        def execute(code: str) -> str:
            arguments = {"action": "call", "subtool": "run", "args": {"code": code}}
            result = host.result("tools/call", {"name": "code_suite", "arguments": arguments})
            assert result["isError"]
            return str(result["content"][-1]["text"])

        for _ in range(2):
            assert f"add `{secret}` to suites.code.sandbox.files.read" in execute(f"open({str(secret)!r})")
        # The server that runs the child is a service of this machine, and so is its broker.
        execute(f"import socket; socket.create_connection(('127.0.0.1', {web.port}), 5).recv(1)")
        stopped = web.ask("POST", "/api/children/code/stop", {})
        assert stopped.status == 200, stopped.body
        execute("import socket; socket.create_connection(('refused.example', 443))")
        metrics = web.ask("GET", "/metrics").body.decode().splitlines()
        shown = web.ask("GET", "/api/children/code").json
    counted = [
        line for line in metrics if line.startswith('switchboard_child_sandbox_refusals_total{child="code"}')
    ]
    assert float(counted[0].split()[-1]) >= 3  # over both processes; a resolver may ask twice
    assert shown["sandboxDenied"] >= 3
    by_message = {refusal["message"]: refusal["count"] for refusal in shown["sandboxRefusals"]}
    assert [count for message, count in by_message.items() if str(secret) in message] == [2]
    assert any("add `refused.example` to" in message for message in by_message)
    log = answered(run(confined, "audit", "show", "--json"))
    assert f"sandbox denied file {secret}" in log
    assert "sandbox denied host refused.example" in log


def test_a_wrapped_child_is_confined_behind_its_wrapper(confined: Path, home: Path) -> None:
    secret = home / ".netrc"
    secret.write_text("secret")
    answered(run(confined, "wrap", "code", HOME=str(home)))
    text = execute(confined, home, f"open({str(secret)!r})")
    assert f"add `{secret}` to suites.code.sandbox.files.read" in text


def test_a_child_in_the_documents_place_runs_in_every_preset_and_in_governed_mode(
    workspace: Path, home: Path
) -> None:
    folder = workspace / ".switchboard" / "mcps" / "kid"
    folder.mkdir(parents=True)
    shutil.copy(REPO / "examples" / "mock-child" / "server.py", folder / "server.py")
    entry = {"name": "kid", "command": os.path.realpath(sys.executable), "args": ["-S", "server.py"]}
    (folder / ".mcp.json").write_text(json.dumps(entry))
    environ = {"HOME": str(home), "SWITCHBOARD_MCP_ENABLED": "true"}
    for config in ({"sandbox": "strict"}, {"sandbox": "workspace"}, {"governance": {"mode": "governed"}}):
        configure(workspace, config)
        if "governance" in config:
            approved = run(workspace, "approve", "--all", "--yes", **environ)
            assert approved.returncode == 0, approved.stderr
        called = run(workspace, "call", "kid", "echo", "message=here", **environ)
        assert (called.returncode, "here" in called.stdout) == (0, True), (
            config,
            called.stdout,
            called.stderr,
        )
