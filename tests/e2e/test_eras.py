"""Hosts and children of different eras, as processes: which era is spoken with whom, and published servers of old."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import pytest_asyncio

from tests.cases import each_case
from tests.e2e.host import SWITCHBOARD, Host, Json, switchboard
from tests.e2e.sdk import Mode, Sdk, sdk_host, sdk_web_host, text_of
from tests.e2e.stress import until
from tests.e2e.web import serving
from tests.e2e.workspaces import REPO, add_child, configure, read_record, recorded, scripted
from tests.patience import PATIENCE_S
from tests.processes import lives

EVERYTHING = [sys.executable, str(REPO / "tests" / "children" / "everything.py")]
MODES: tuple[Mode, ...] = ("legacy", "auto")
PREFIX = "io.modelcontextprotocol/"
# Ends at any request that is no handshake, as some servers do.
SHY = """
class Shy(Child):
    def receive(self, message, line):
        if message["method"] == "server/discover":
            raise SystemExit(1)
        super().receive(message, line)

Shy().serve()
"""
# Asks for a name in the middle of a call.
ASKER = """
class Asker(Child):
    tools = ("greet",)

    def call(self, request_id, params, line):
        self.open = request_id
        send({"id": "q", "method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}})

    def hear(self, message):
        name = message["result"]["content"]["name"] if "result" in message else message["error"]["message"]
        self.answer(self.open, text("Hello " + name))

Asker().serve()
"""
# Asks for the roots: in the middle of a call, or between two calls for the next.
ROOTS = """
class Rooted(Child):
    tools = ("now", "later", "known")
    known = None

    def call(self, request_id, params, line):
        self.open, name = request_id, params["name"]
        if name == "later":
            self.answer(request_id, text("I ask now"))
            self.open = None
        if name == "known":
            self.answer(request_id, text(self.known or "nothing yet"))
        else:
            send({"id": "roots", "method": "roots/list"})

    def hear(self, message):
        self.known = message["result"]["roots"][0]["uri"]
        if self.open is not None:
            self.answer(self.open, text(self.known))

Rooted().serve()
"""
PID = """
class Pid(Child):
    def call(self, request_id, params, line):
        self.answer(request_id, text(str(os.getpid())))

Pid().serve()
"""


def greet(**more: Any) -> Json:
    return {"name": "asker_suite", "arguments": {"action": "call", "subtool": "greet"}, **more}


def modern(params: Json, **capabilities: Json) -> Json:
    meta = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": capabilities}
    return {**params, "_meta": meta}


# --- which era is spoken -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "era", "opening"),
    [
        ("legacy", "both", "initialize"),
        ("auto", "both", "server/discover"),
        ("legacy", "modern", "server/discover"),  # once it has refused a handshake, it is started anew
        ("auto", "legacy", "server/discover"),
    ],
)
async def test_a_child_is_first_asked_in_the_era_of_its_host(
    workspace: Path, tmp_path: Path, mode: Mode, era: str, opening: str
) -> None:
    record = tmp_path / "record"
    add_child(workspace, "kid", recorded([*EVERYTHING, "--era", era], record))
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=mode) as sdk:
        arguments = {"action": "call", "subtool": "greet", "args": {"name": "Al"}}
        assert text_of(await sdk.client.call_tool("kid_suite", arguments)) == "Hello, Al!"
    sent = read_record(record)
    assert sent[0]["method"] == opening
    (called,) = (message for message in sent if message.get("method") == "tools/call")
    stateless = PREFIX + "protocolVersion" in called["params"].get("_meta", {})
    assert stateless is (era == "modern" or (era == "both" and mode == "auto"))


@pytest.mark.parametrize("mode", MODES)
async def test_a_child_that_ends_when_it_is_probed_still_serves(workspace: Path, mode: Mode) -> None:
    add_child(workspace, "shy", scripted(SHY))
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=mode) as sdk:
        arguments = {"action": "call", "subtool": "echo", "args": {"message": "here"}}
        assert text_of(await sdk.client.call_tool("shy_suite", arguments)) == "here"


def test_one_pipe_serves_both_eras(workspace: Path) -> None:
    add_child(workspace, "asker", scripted(ASKER))
    with switchboard(workspace) as host:
        host.replies["elicitation/create"] = {"action": "accept", "content": {"name": "old"}}
        found = host.result("server/discover", modern({}))
        assert (found["resultType"], found["supportedVersions"]) == ("complete", ["2026-07-28"])
        host.initialize()
        new = host.result("tools/call", modern(greet(), elicitation={}))
        assert new["resultType"] == "input_required"
        back = greet(
            requestState=new["requestState"],
            inputResponses={
                key: {"action": "accept", "content": {"name": "new"}} for key in new["inputRequests"]
            },
        )
        done = host.result("tools/call", modern(back, elicitation={}))
        assert done == {"resultType": "complete", "content": [{"type": "text", "text": "Hello new"}]}
        assert host.notifications("elicitation/create") == []
        old = host.result("tools/call", greet())  # this host declared nothing in its handshake
        assert old["content"][0]["text"].startswith("Hello No host can answer")


def test_what_was_asked_is_parked_until_the_right_request_comes_back(workspace: Path) -> None:
    add_child(workspace, "asker", scripted(ASKER))
    with switchboard(workspace) as host:
        asked = host.result("tools/call", modern(greet(), elicitation={}))
        ((key, question),) = asked["inputRequests"].items()
        assert question == {
            "method": "elicitation/create",
            "params": {"message": "Who?", "requestedSchema": {}},
        }
        state = asked["requestState"]
        answer = {key: {"action": "accept", "content": {"name": "Al"}}}
        for wrong in (
            greet(requestState=state + "x", inputResponses=answer),
            greet(requestState="elsewhere", inputResponses=answer),
            {
                **greet(requestState=state, inputResponses=answer),
                "arguments": {"action": "call", "subtool": "other"},
            },
        ):
            assert host.error("tools/call", modern(wrong, elicitation={}))["code"] == -32602
        right = greet(requestState=state, inputResponses=answer)
        assert host.result("tools/call", modern(right, elicitation={}))["content"][0]["text"] == "Hello Al"
        assert host.error("tools/call", modern(right, elicitation={}))["code"] == -32602


def test_what_the_host_lacks_is_named(workspace: Path) -> None:
    failing = ASKER.replace(
        'self.answer(self.open, text("Hello " + name))',
        'send({"id": self.open, "error": {"code": -32603, "message": name}})',
    )
    add_child(workspace, "asker", scripted(failing))
    with switchboard(workspace) as host:
        error = host.error("tools/call", modern(greet()))
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


# --- a published server of the handshake era ---------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODES)
async def published(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sdk]:
    workspace = tmp_path_factory.mktemp("published")
    program = REPO / "tests" / "npm" / "node_modules" / ".bin" / "mcp-server-everything"
    add_child(workspace, "all", [str(program)])
    env = {**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=request.param, env=env) as sdk:
        yield sdk


async def use(sdk: Sdk, tool: str, **args: Any) -> str:
    result = await sdk.client.call_tool("all_suite", {"action": "call", "subtool": tool, "args": args})
    assert not result.is_error, result
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.asyncio(loop_scope="module")
@each_case(
    ("tool", "args", "asked", "told"),
    [
        ("trigger-sampling-request", {"prompt": "hi"}, "sampling", "said the model"),
        ("trigger-elicitation-request", {}, "form", "Al"),
        ("trigger-url-elicitation", {"url": "https://example.com/"}, "url", "accept"),
    ],
)
async def test_a_published_server_asks_hosts_of_both_eras(
    published: Sdk, tool: str, args: Json, asked: str, told: str
) -> None:
    before = len(published.asked)
    assert told in await use(published, tool, **args)
    assert asked in published.asked[before:]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_published_server_knows_the_roots(published: Sdk) -> None:
    # It asks once, 350 ms after its start. If that is between two calls, a host without a session cannot be asked.
    known = await use(published, "get-roots-list")
    assert ("file:///from/host" if "roots" in published.asked else "/published") in known
    assert "roots" in published.asked or published.mode == "auto"


@pytest.mark.parametrize("mode", MODES)
async def test_the_roots_are_those_of_the_host_if_it_can_be_asked(workspace: Path, mode: Mode) -> None:
    add_child(workspace, "kid", scripted(ROOTS))
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=mode) as sdk:

        async def call(subtool: str) -> str:
            return text_of(await sdk.client.call_tool("kid_suite", {"action": "call", "subtool": subtool}))

        assert await call("now") == "file:///from/host"
        if mode == "legacy":
            await call("later")
            assert await call("known") == "file:///from/host"
        else:
            async with asyncio.timeout(PATIENCE_S):
                while (
                    await call("known") != workspace.as_uri()
                ):  # unless the next call has come before the question
                    await call("later")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_published_server_reports_and_offers(published: Sdk) -> None:
    steps: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if progress >= 1:  # below that, the child is still starting
            steps.append(progress)

    args = {"duration": 0.03, "steps": 3}
    arguments = {"action": "call", "subtool": "trigger-long-running-operation", "args": args}
    await published.client.call_tool("all_suite", arguments, progress_callback=note)
    assert steps == [1, 2, 3]
    prompts = [prompt.name for prompt in (await published.client.list_prompts()).prompts]
    assert "all__args-prompt" in prompts
    got = await published.client.get_prompt("all__args-prompt", {"city": "Lisbon"})
    assert "Lisbon" in str(got.messages[0].content)
    uris = [str(resource.uri) for resource in (await published.client.list_resources()).resources]
    read = await published.client.read_resource(uris[0])
    assert str(read.contents[0].uri) == uris[0]
    read = await published.client.read_resource("switchboard://all/demo://resource/dynamic/text/7")
    assert "7" in str(read.contents[0])


@pytest.mark.asyncio(loop_scope="module")
async def test_a_tool_that_only_runs_as_a_task_is_called_like_any_other(published: Sdk) -> None:
    assert "honey" in (await use(published, "simulate-research-query", topic="honey")).lower()


# --- isolation ---------------------------------------------------------------------------------------------


async def pid_of(host: Sdk) -> int:
    arguments = {"action": "call", "subtool": "echo", "args": {}}
    return int(text_of(await host.client.call_tool("kid_suite", arguments)))


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_each_host_session_has_its_own_process_where_that_is_wanted(
    workspace: Path, isolation: str
) -> None:
    add_child(workspace, "kid", scripted(PID))
    configure(workspace, {"suites": {"kid": {"isolation": isolation, "isolationMax": 3}}})
    with serving(workspace) as web:
        async with sdk_web_host(web, "session") as one:
            async with sdk_web_host(web, "session") as two, sdk_web_host(web, "stateless") as three:
                first, second, third = [await pid_of(host) for host in (one, two, three)]
                assert await pid_of(one) == first
                assert await pid_of(three) == third
                assert len({first, second, third}) == (1 if isolation == "shared" else 3)
                if isolation == "session":
                    async with sdk_web_host(web, "session") as four:
                        asked = {"action": "call", "subtool": "echo", "args": {}}
                        full = await four.client.call_tool("kid_suite", asked)
                        assert full.structured_content is not None
                        assert full.structured_content["error"]["code"] == "child_isolation_full"
            if isolation == "session":
                await asyncio.to_thread(until, lambda: not lives(second), "its process has ended")
            assert await pid_of(one) == first


def test_over_pipes_there_is_one_host_and_one_process(workspace: Path) -> None:
    add_child(workspace, "kid", scripted(PID))
    configure(workspace, {"suites": {"kid": {"isolation": "session"}}})
    with switchboard(workspace) as host:
        host.initialize()
        pids = {_pid(host, modern=era) for era in (False, True, False)}
    assert len(pids) == 1


def _pid(host: Host, *, modern: bool) -> str:
    params: Json = {"name": "kid_suite", "arguments": {"action": "call", "subtool": "echo", "args": {}}}
    if modern:
        params["_meta"] = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}
    text: str = host.result("tools/call", params)["content"][0]["text"]
    return text
