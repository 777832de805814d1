"""Remote children as users write them down: the dialect, headers and their secrets, logins from a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from switchboard_mcp.system.installation import current_installation
from tests.cases import each_case
from tests.e2e.host import switchboard
from tests.e2e.shell import COMMAND, run
from tests.e2e.workspaces import REPO, configure
from tests.patience import PATIENCE_S


@contextmanager
def child(program: str, *arguments: str) -> Iterator[str]:
    """One of the servers in tests/children; gives its address."""
    path = REPO / "tests" / "children" / program
    started = subprocess.Popen([sys.executable, str(path), *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        yield started.stdout.readline().strip()
    finally:
        started.kill()
        started.communicate()


def test_a_child_is_called_over_every_transport(workspace: Path) -> None:
    entries = [
        ("streamable", {}),
        ("streamable", {"type": "http"}),
        ("json", {"type": "streamable-http"}),
        ("modern", {"type": "http"}),
        ("sse", {"type": "sse"}),
        ("websocket", {}),
        ("websocket", {"type": "ws"}),
    ]
    with ExitStack() as stack:
        names = {transport for transport, _ in entries}
        urls = {transport: stack.enter_context(child("shop.py", transport)) for transport in names}
        shops = {
            f"{transport}-{number}": {"url": urls[transport], **entry}
            for number, (transport, entry) in enumerate(entries)
        }
        configure(workspace, {"mcpServers": shops})
        with switchboard(workspace) as host:
            answers = {shop: host.call(f"{shop}_suite", "add", a=1, b=2)["content"] for shop in shops}
    assert answers == {shop: [{"type": "text", "text": "3"}] for shop in shops}


@pytest.mark.parametrize("transport", ["streamable", "modern"])
def test_a_server_that_was_started_anew_between_two_calls_is_not_noticed(
    workspace: Path, transport: str
) -> None:
    with ExitStack() as first:
        url = first.enter_context(child("shop.py", transport))
        configure(workspace, {"mcpServers": {"shop": {"url": url}}})
        with switchboard(workspace) as host:
            host.initialize()
            assert host.call("shop_suite", "add", a=1, b=2)["content"][0]["text"] == "3"
            first.close()
            with child("shop.py", transport, str(urlsplit(url).port)):
                assert host.call("shop_suite", "add", a=2, b=2)["content"][0]["text"] == "4"


def test_a_dry_run_and_the_doctor_look_at_remote_children_too(workspace: Path) -> None:
    with child("shop.py", "json") as url:
        servers = {"shop": {"url": url}, "gone": {"url": "http://127.0.0.1:1/mcp?key=hunter2hunter2"}}
        configure(workspace, {"mcpServers": servers})
        looked = run(workspace, "--dry-run")
        examined = run(workspace, "doctor", "--json")
    assert "until_cancelled" in looked.stdout
    found = {one["child"]: one for one in json.loads(examined.stdout)["children"]}
    assert found["shop"]["ok"]
    assert "cannot be reached: the connection was refused" in found["gone"]["findings"][0]["message"]
    assert "hunter2" not in looked.stdout + looked.stderr + examined.stdout + examined.stderr


def test_a_header_with_a_variable_lets_us_in_and_is_never_shown(workspace: Path) -> None:
    entry = {"url": "${GATE}", "headers": {"Authorization": "Bearer ${GATE_TOKEN}"}}
    configure(workspace, {"mcpServers": {"gate": entry}})
    missing = run(workspace, "call", "gate", "add")
    assert "GATE_TOKEN (" in missing.stderr
    with child("guarded.py") as url:
        refused = run(
            workspace, "call", "gate", "add", "--log-level=debug", GATE=url, GATE_TOKEN="sesame-0123456789"
        )
    assert refused.returncode == 1
    assert "requires authorization (HTTP 401)" in refused.stderr
    assert "switchboard login" not in refused.stderr
    assert "sesame" not in refused.stderr + refused.stdout


def log_in(workspace: Path, *more: str) -> str:
    """Log in as a person does, the browser being played by us. Gives what was said in the end."""
    login = subprocess.Popen(
        [*COMMAND, "login", "gate", "--no-browser", *more],
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert login.stderr is not None
    try:
        assert login.stderr.readline() == "Open this address to log in:\n"
        address = login.stderr.readline().strip()
        with urlopen(address, timeout=PATIENCE_S) as page:
            assert "You are logged in" in page.read().decode()
        out, err = login.communicate(timeout=PATIENCE_S)
    finally:
        login.kill()
        login.communicate()
    assert login.returncode == 0, err
    return str(out)


def test_a_child_that_wants_a_login_is_used_after_one(workspace: Path, isolated_cache: Path) -> None:
    # So short that every process finds the token at its end, and has to renew it.
    with child("guarded.py", "20") as url:
        # On a loaded machine a start takes longer than the default allows.
        timeouts = {"childSpawnMs": 120_000, "rpcMs": 120_000}
        configure(workspace, {"mcpServers": {"gate": {"url": url}}, "timeouts": timeouts})
        before = run(workspace, "call", "gate", "add", "a=1", "b=2")
        assert before.returncode == 1
        assert "`switchboard login gate`" in before.stderr
        said = log_in(workspace)
        assert said.startswith("Logged in to 'gate'.")
        for _ in range(2):
            done = run(workspace, "call", "gate", "add", "a=1", "b=2")
            assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
        run(workspace, "call", "gate", "forget")
        after = run(workspace, "call", "gate", "add", "a=1", "b=2", "--log-level=debug")
        assert after.returncode == 1
        assert "requires a new login" in after.stderr
        assert "Traceback" not in after.stderr
        again = json.loads(log_in(workspace, "--json"))
        assert (again["child"], again["loggedInNow"]) == ("gate", True)
        (file,) = (isolated_cache.parent / "state" / "switchboard-mcp" / "logins").glob("*.json")
        assert str(file) == again["file"]
        token = json.loads(file.read_text())["accessToken"]
        assert token not in after.stderr + said
        assert run(workspace, "call", "gate", "add", "a=2", "b=2").stdout == "4\n"


def test_who_is_logged_in_already_need_not_do_it_again(workspace: Path) -> None:
    with child("guarded.py") as url:
        configure(workspace, {"mcpServers": {"gate": {"url": url}}})
        log_in(workspace)
        again = run(workspace, "login", "gate")
    assert (again.returncode, again.stderr) == (0, "")
    assert "there is nothing to do" in again.stdout


def test_a_login_is_forgotten_at_logout(workspace: Path, isolated_cache: Path) -> None:
    with child("guarded.py") as url:
        configure(workspace, {"mcpServers": {"gate": {"url": url}}})
        log_in(workspace)
        folder = isolated_cache.parent / "state" / "switchboard-mcp" / "logins"
        (file,) = folder.glob("*.json")
        token = json.loads(file.read_text())["accessToken"]
        done = run(workspace, "logout", "gate")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Logged out of 'gate'.")
        assert token not in done.stdout
        assert list(folder.iterdir()) == []
        after = run(workspace, "call", "gate", "add", "a=1", "b=2")
        assert "`switchboard login gate`" in after.stderr
        again = run(workspace, "logout", "gate", "--json")
        assert json.loads(again.stdout) == {"child": "gate", "loggedIn": False, "removed": False}


def test_a_logout_where_there_can_be_no_login_is_refused(workspace: Path) -> None:
    configure(workspace, {"mcpServers": {"gate": {"command": "true"}}})
    done = run(workspace, "logout", "gate")
    assert done.returncode == 2
    assert "uses stdio, which has no login" in done.stderr


@each_case(
    ("entry", "told"),
    [
        ({"command": "true"}, "uses stdio, which has no login"),
        ({"url": "ws://127.0.0.1:1"}, "uses ws, which has no login"),
        ({"url": "http://127.0.0.1:1", "oauth": False}, "no login is used"),
        ({"url": "http://127.0.0.1:1", "headers": {"authorization": "x"}}, "no login is used"),
        ({"url": "http://127.0.0.1:1/mcp"}, "cannot be reached: the connection was refused"),
        ({"url": "127.0.0.1:1"}, "is not a valid URL"),
    ],
)
def test_a_login_that_cannot_be_is_refused(workspace: Path, entry: dict[str, object], told: str) -> None:
    configure(workspace, {"mcpServers": {"gate": entry}})
    done = run(workspace, "login", "gate")
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("switchboard: ")
    assert told in done.stderr


def test_a_login_to_nobody_says_who_was_meant(workspace: Path) -> None:
    configure(workspace, {"mcpServers": {"gate": {"url": "http://127.0.0.1:1"}}})
    done = run(workspace, "login", "gaet")
    assert done.returncode == 2
    assert "Did you mean gate?" in done.stderr


def test_without_the_packages_for_it_a_remote_child_says_what_to_install(workspace: Path) -> None:
    configure(workspace, {"mcpServers": {"web": {"url": "http://127.0.0.1:1/mcp"}}})
    code = """if True:
        import sys
        sys.modules.update(httpx2=None, anyio=None, httpcore2=None, websockets=None)
        sys.argv = ["switchboard", "call", "web", "x"]
        from switchboard_mcp.__main__ import main
        sys.exit(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert current_installation().command("") in done.stderr
