"""Mail between machines, as its users see it: the commands, the servers, one name for one agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.busmachine import PASSWORD, Machine, until
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.e2e.web import HostSession, serving

pytestmark = needs_redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start("--requirepass", PASSWORD)
    server.url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"
    yield server
    server.kill()


def test_letters_and_receipts_cross_between_two_workspaces(redis: RedisServer, tmp_path: Path) -> None:
    near, far = Machine(tmp_path / "near", redis.url), Machine(tmp_path / "far", redis.url)
    near.run("mail", "agents", "add", "ada")
    far.run("mail", "agents", "add", "bob")
    with ExitStack() as stack:
        stack.enter_context(near.relay())
        stack.enter_context(far.relay())
        until(lambda: near.knows("bob"))
        near.run("mail", "send", "bob", "hello over there", "--as", "ada")
        until(lambda: far.waiting("bob") == ["hello over there"])
        message = far.ask("mail", "claim", "--as", "bob")["messages"][0]["message"]
        assert (message["payload"], message["sender"]) == ("hello over there", "ada")
        done = far.run("mail", "ack", message["id"], "done", "--result", "hello back", "--as", "bob")
        assert done.returncode == 0, done.stderr
        until(lambda: near.waiting("ada") == ["hello back"])
        until(lambda: '"done"' in json.dumps(near.ask("mail", "receipts", message["id"], "--as", "ada")))
        status = near.ask("bus", "status")
        assert PASSWORD not in json.dumps(status)
        assert sorted(name for each in status["redis"]["machines"] for name in each["agents"]) == [
            "ada",
            "bob",
        ]
        assert near.ask("status")["bus"]["state"] == "connected"
        refused = near.run("bus", "relay")
        assert refused.returncode == 1
        assert "already" in refused.stderr


def test_without_redis_the_commands_say_so_and_local_mail_goes_on(tmp_path: Path) -> None:
    alone = Machine(tmp_path / "alone", "redis://127.0.0.1:1/0")
    alone.run("mail", "agents", "add", "ada")
    alone.run("mail", "agents", "add", "bob")
    with alone.relay():
        until(lambda: alone.ask("bus", "status")["relay"] is not None)
        told = alone.run("bus", "status")
        assert told.returncode == 1
        assert "cannot be used" in told.stdout
        assert "Redis" in alone.run("doctor").stdout
        assert alone.run("mail", "send", "bob", "still here", "--as", "ada").returncode == 0
        assert alone.ask("mail", "inbox", "--as", "bob")["messages"]


def test_a_password_that_redis_refuses_is_told_without_showing_it(redis: RedisServer, tmp_path: Path) -> None:
    wrong = Machine(tmp_path / "wrong", redis.url.replace(PASSWORD, "not-the-password-at-all"))
    told = wrong.run("bus", "status")
    assert told.returncode == 1
    assert "rejected" in told.stdout
    assert "not-the-password-at-all" not in told.stdout + told.stderr


def test_what_happens_is_told_as_events_once_though_the_relay_was_not_there(
    redis: RedisServer, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "one", redis.url)
    machine.run("mail", "agents", "add", "ada")
    machine.run("mail", "agents", "add", "bob")
    sent = machine.ask("mail", "send", "bob", "do it", "--as", "ada")["sent"][0]["id"]
    for _ in range(2):
        with machine.relay():
            until(lambda: bool(machine.events()))
        machine.run("mail", "claim", "--as", "bob")
        machine.run("mail", "ack", sent, "done", "--as", "bob")
    with machine.relay():
        until(lambda: len(machine.events()) == 2)
    events = machine.events()
    assert [(event["kind"], event["subject"], event["outcome"], event["who"]) for event in events] == [
        ("message", sent, "delivered", "ada"),
        ("message", sent, "done", "ada"),
    ]
    assert {event["v"] for event in events} == {1}
    assert len({event["id"] for event in events}) == 2


def tool(session: HostSession, subtool: str, **args: Any) -> Any:
    params = {"name": "mail_suite", "arguments": {"action": "call", "subtool": subtool, "args": args}}
    return session.result("tools/call", params)


def test_servers_on_two_machines_are_one_desk_and_a_name_is_one_agent(
    redis: RedisServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        webs = []
        for name in ("near", "far"):
            machine = Machine(tmp_path / name, redis.url)
            webs.append(stack.enter_context(serving(machine.folder, env=machine.env)))
        near, far = (web.initialize() for web in webs)
        until(lambda: all(web.ask("GET", "/health").json["bus"]["state"] == "connected" for web in webs))
        assert not tool(near, "register_chat_agent", name="ada").get("isError")
        assert not tool(far, "register_chat_agent", name="bob").get("isError")

        def presence() -> dict[str, str]:
            agents = tool(near, "list_agents")["structuredContent"]["agents"]
            return {agent["name"]: agent["presence"] for agent in agents}

        until(lambda: presence() == {"ada": "online", "bob": "online"})
        taken = tool(webs[1].initialize(), "register_chat_agent", name="ada")
        assert taken["structuredContent"]["error"]["code"] == "mail_name_taken"
        assert "another machine" in taken["structuredContent"]["error"]["message"]
        sent = tool(near, "send_message", recipient="bob", action="delegate_task", payload="hello")
        assert not sent.get("isError"), sent
        told = tool(far, "wait_for_mail")
        assert "hello" in json.dumps(told)
        logs = "".join(web.log.read_text() for web in webs)
        assert PASSWORD not in logs


@pytest.mark.parametrize(
    ("url", "said"),
    [("http://not.redis", "is not a valid Redis URL"), ("redis://127.0.0.1:1", "cannot be used")],
)
def test_a_server_whose_bus_cannot_be_used_serves_all_the_same_and_says_so(
    tmp_path: Path, url: str, said: str
) -> None:
    machine = Machine(tmp_path / "one", url)
    with serving(machine.folder, env=machine.env) as web:
        session = web.initialize()
        assert not tool(session, "register_chat_agent", name="ada").get("isError")
        until(lambda: said in web.log.read_text())
