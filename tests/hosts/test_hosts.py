"""Real hosts: each finds Switchboard well, offers its suites to its model, and calls reach the child.

Over pipes, which is what a user's `command` entry means, and over HTTP with the token in a header.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.host import SWITCHBOARD
from tests.e2e.shell import answered, parsed, run
from tests.e2e.stress import until
from tests.e2e.workspaces import MOCK_CHILD, PYTHON, REPO, add_child, configure
from tests.e2e.workspaces import scripted as child_script
from tests.hosts.model import scripted
from tests.hosts.programs import (
    HOSTS,
    NOWHERE,
    PATIENCE_MS,
    WITH_SSE,
    CopilotCli,
    HostProgram,
    Http,
    Stdio,
)
from tests.hosts.recording_proxy import recorded
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.e2e]
# In `make test` each host calls a child over pipes; what else hosts do is in `make soak`.
SOAK = pytest.mark.soak("hosts")

SUITES = ["mock_suite", "tracker_suite"]
# Whatever a host shows of a call, the sum comes from the child.
ADD = {"action": "call", "subtool": "add", "args": {"a": 123456, "b": 654321}}
SUM = "777777"
RECORDER = [*PYTHON, str(Path(__file__).with_name("recorder.py"))]


@pytest.fixture(params=HOSTS, ids=lambda kind: kind.name)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> HostProgram:
    """A host with an empty home."""
    kind: type[HostProgram] = request.param
    made = kind(tmp_path / "home")
    made.command()  # skips where there is none
    return made


@pytest.fixture
def suites(workspace: Path) -> list[str]:
    """The command that serves a workspace of two children."""
    return serving(workspace)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """One Switchboard over HTTP for all hosts."""
    workspace = tmp_path_factory.mktemp("web")
    command = [*serving(workspace), "serve", "--http", "127.0.0.1:0"]
    env = {**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stderr
            url = next(
                word[4:] for line in process.stderr for word in line.split() if word.startswith("url=")
            )
            yield Http(url, (workspace / ".switchboard" / "auth_token").read_text().strip())
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def serving(workspace: Path) -> list[str]:
    add_child(workspace, "mock", MOCK_CHILD)
    add_child(workspace, "tracker", [*PYTHON, str(REPO / "examples" / "demo" / "tracker.py")])
    return [*SWITCHBOARD, "--workspace", str(workspace)]


@SOAK
def test_a_host_that_starts_switchboard_says_it_is_connected(host: HostProgram, suites: list[str]) -> None:
    host.configure(Stdio(suites), model=NOWHERE)
    assert host.says_connected()


@SOAK
def test_a_host_with_the_address_says_it_is_connected(host: HostProgram, web: Http) -> None:
    host.configure(web, model=NOWHERE)
    assert host.says_connected()


@SOAK
def test_a_host_with_a_wrong_token_does_not_say_so(host: HostProgram, web: Http) -> None:
    host.configure(web._replace(token="wrong"), model=NOWHERE)
    assert not host.says_connected()


def test_over_pipes_the_suites_are_listed_and_a_call_reaches_the_child(
    host: HostProgram, suites: list[str], tmp_path: Path
) -> None:
    record = tmp_path / "record.jsonl"
    use_a_suite(host, Stdio([*RECORDER, str(record), *suites]))
    asked, answers = read(record)
    assert asked[0]["method"] == host.opening
    lists = [message["id"] for message in asked if message["method"] == "tools/list"]
    listing = next(id for id in reversed(lists) if id in answers)
    assert [tool["name"] for tool in answers[listing]["tools"]] == SUITES


@SOAK
def test_over_http_the_suites_are_listed_and_a_call_reaches_the_child(host: HostProgram, web: Http) -> None:
    with recorded(web.url) as proxy:
        use_a_suite(host, web._replace(url=proxy.url))
    assert proxy.methods[0] == host.opening
    assert "tools/list" in proxy.methods


@SOAK
@pytest.mark.parametrize("host", WITH_SSE, indirect=True, ids=lambda kind: kind.name)
def test_over_http_with_sse_too(host: HostProgram, web: Http) -> None:
    with recorded(web.url.replace("/mcp", "/sse")) as proxy:
        use_a_suite(host, web._replace(url=proxy.url, kind="sse"))
    assert proxy.methods[0] == "initialize"


# Answers when as many calls have come as hosts were started.
MEETING = child_script(
    """
    import os
    class Meeting(Child):
        tools = ("meet",)
        waiting = []
        def call(self, request_id, params, line):
            self.waiting.append(request_id)
            if len(self.waiting) == 3:
                for waiting in self.waiting:
                    self.answer(waiting, text(f"met-{os.getpid()}"))
    Meeting().serve()
    """
)


@SOAK
@pytest.mark.parametrize("host", [*HOSTS, CopilotCli], indirect=True, ids=lambda kind: kind.name)
def test_a_host_started_three_times_at_once_starts_one_broker_and_has_the_suites_in_each(
    host: HostProgram, workspace: Path
) -> None:
    configure(workspace, {"broker": {"enabled": True, "lingerMs": PATIENCE_MS}})
    add_child(workspace, "meeting", MEETING)
    call = {"action": "call", "subtool": "meet", "args": {}}
    with scripted("meeting_suite", call) as model, ThreadPoolExecutor(3) as pool:
        host.configure(Stdio([*SWITCHBOARD, "--workspace", str(workspace)]), model.url)
        assert host.says_connected()  # its home is complete
        until(lambda: not sessions(workspace), "the session has ended")
        answered(run(workspace, "broker", "stop"))

        def use(_: int) -> str:
            return host.prompt_until(lambda told: "met-" in told.out).out

        outputs = [*pool.map(use, range(3))]
    # Each session has ended with its host, so there is nothing to end by force.
    until(lambda: not sessions(workspace), "all sessions have ended")
    answered(run(workspace, "broker", "stop"))
    met = {word for out in outputs for word in re.findall(r"met-[0-9]+", out)}
    assert len(met) == 1, outputs
    assert all(next(iter(met)) in out for out in outputs), outputs
    assert host.tool_prefix + "meeting_suite" in model.tools


def sessions(workspace: Path) -> list[Any]:
    """The sessions of the one broker of a workspace."""
    (broker,) = parsed(run(workspace, "broker", "status", "--json"))["brokers"]
    found: list[Any] = broker["sessions"]
    return found


def use_a_suite(host: HostProgram, entry: Stdio | Http) -> None:
    with scripted("mock_suite", ADD) as model:
        host.configure(entry, model.url)
        told = host.prompt_until(lambda _: model.results)
    offered = {tool for tool in model.tools if tool.startswith(host.tool_prefix)}
    assert offered >= {host.tool_prefix + suite for suite in SUITES}, told
    assert SUM in "".join(model.results), told
    assert SUM in told.out, told


def read(record: Path) -> tuple[list[dict[str, Any]], dict[Any, Any]]:
    """What the host asked, and the results by id."""
    told = [json.loads(line) for line in record.read_text().splitlines()]
    asked = [each["message"] for each in told if each["from"] == "host" and "method" in each["message"]]
    answered = [each["message"] for each in told if each["from"] == "switchboard"]
    return asked, {message["id"]: message["result"] for message in answered if "result" in message}
