"""One set of promises for every kind of session: alone, through the broker, continued after one, and over HTTP."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.e2e import web
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.stress import memory_mib, server_of, survivors, tree, until
from tests.e2e.workspaces import add_child, configure, scripted
from tests.patience import PATIENCE_S

KINDS = ("alone", "broker", "continued", "http")
LINE_BYTES = 1_000
# That may be on its way to a host: in its pipe or connection, in the one to Switchboard, and kept until it reads on.
MAX_AHEAD_BYTES = 1_024 * 1_024
FLOOD_BYTES = 2 * 1_024 * 1_024
MAX_GROWTH_MIB = 50

# Writes log lines without end, and reports how many bytes it could write.
NOISY = scripted(
    f"""
    import os, threading
    class Noisy(Child):
        tools = ("flood", "stop", "echo")
        ended = False
        def result(self, method, params):
            result = super().result(method, params)
            if method == "initialize":
                result["capabilities"]["logging"] = {{}}
            return result
        def flood(self, file):
            written = 0
            while not self.ended:
                params = {{"level": "info", "data": "x" * {LINE_BYTES}}}
                send({{"method": "notifications/message", "params": params}})
                written += {LINE_BYTES}
                if not written % {100 * LINE_BYTES}:
                    with open(file + ".new", "w") as report:
                        report.write(str(written))
                    os.replace(file + ".new", file)
        def call(self, request_id, params, line):
            if params["name"] == "flood":
                threading.Thread(target=self.flood, args=[params["arguments"]["file"]], daemon=True).start()
            elif params["name"] == "stop":
                self.ended = True
            self.answer(request_id, text("done"))
    Noisy().serve()
    """
)
QUIET = scripted(
    """
    class Quiet(Child):
        tools = ("echo",)
        def call(self, request_id, params, line):
            self.answer(request_id, text("echo"))
    Quiet().serve()
    """
)


class Seat(Protocol):
    """One session of a host, whatever serves it."""

    @property
    def server(self) -> int:
        """The process that serves it."""

    def call(self, suite: str, subtool: str, **args: Any) -> Json:
        """The result of a call."""

    def ahead(self) -> int:
        """Log lines that came before the last answer."""

    def log_line(self) -> Json:
        """The next log line."""

    def reload(self, config: Json) -> None:
        """Change the config, and wait until it is used."""


class PipeSeat:
    """A session over pipes."""

    def __init__(self, host: Host, workspace: Path) -> None:
        self._host = host
        self._workspace = workspace

    @property
    def server(self) -> int:
        return server_of(self._host)

    def call(self, suite: str, subtool: str, **args: Any) -> Json:
        return self._host.call(suite, subtool, **args)

    def ahead(self) -> int:
        return len(self._host.notifications("notifications/message"))

    def log_line(self) -> Json:
        return self._host.notification("notifications/message")

    def reload(self, config: Json) -> None:
        configure(self._workspace, config)
        until(lambda: "config.reloaded" in self._host.stderr, "the config is reloaded")


class HttpSeat:
    """A session over HTTP, which leaves its own stream unread while it calls."""

    def __init__(self, front: web.Web, stack: ExitStack) -> None:
        self._front = front
        self._session = front.initialize()
        self._stream = stack.enter_context(self._session.listen())
        self._ids = iter(range(1, 10_000))

    @property
    def server(self) -> int:
        return self._front.process.pid

    def call(self, suite: str, subtool: str, **args: Any) -> Json:
        arguments = {"action": "call", "subtool": subtool, "args": args}
        return self._session.result("tools/call", {"name": suite, "arguments": arguments}, id=next(self._ids))

    def ahead(self) -> int:
        return 0  # answers have connections of their own

    def log_line(self) -> Json:
        params: Json = self._stream.until("notifications/message")
        return params

    def reload(self, config: Json) -> None:
        configure(self._front.workspace, config)
        until(lambda: "config.reloaded" in self._front.log.read_text(), "the config is reloaded")


def config_of(kind: str, **more: Json) -> Json:
    return {"broker": {"enabled": kind in ("broker", "continued"), "lingerMs": 100}, **more}


def seated(kind: str, workspace: Path, stack: ExitStack, **more: Json) -> Seat:
    """A session of this kind, ready for calls."""
    configure(workspace, config_of(kind, **more))
    if kind == "http":
        return HttpSeat(stack.enter_context(web.serving(workspace)), stack)
    environ = {name: value for name, value in os.environ.items() if name != "SWITCHBOARD_BROKER"}
    host = stack.enter_context(switchboard(workspace, *(["--alone"] if kind == "alone" else []), env=environ))
    host.initialize()
    seat = PipeSeat(host, workspace)
    assert (seat.server == host.process.pid) == (kind == "alone")
    if kind == "continued":
        leave_broker(host, workspace, seat.server)
    return seat


def leave_broker(host: Host, workspace: Path, broker: int) -> None:
    """End a broker where none may follow, so that the session goes on in its own process."""
    config = json.loads((workspace / "switchboard.config.json").read_text())
    config["broker"]["enabled"] = False
    configure(workspace, config)
    os.kill(broker, signal.SIGKILL)
    host.request("ping")
    assert server_of(host) == host.process.pid


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends the sessions of a test."""
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize(
    "kind",
    [kind if kind == "broker" else pytest.param(kind, marks=pytest.mark.soak("floods")) for kind in KINDS],
)
def test_a_child_that_floods_its_log_slows_itself_and_answers_do_not_wait_behind_it(
    kind: str, workspace: Path, stack: ExitStack
) -> None:
    add_child(workspace, "noisy", NOISY)
    add_child(workspace, "quiet", QUIET)
    seat, report = seated(kind, workspace, stack), workspace / "written"
    for suite in ("noisy_suite", "quiet_suite"):
        assert not seat.call(suite, "echo").get("isError")
    server = seat.server
    before = memory_mib(server)
    seat.call("noisy_suite", "flood", file=str(report))
    heard = seat.ahead()
    until(lambda: report.exists() and int(report.read_text()) > FLOOD_BYTES, "the child floods")
    assert not seat.call("quiet_suite", "echo").get("isError")
    assert (seat.ahead() - heard) * LINE_BYTES < MAX_AHEAD_BYTES
    for suite in ("noisy_suite", "quiet_suite") * 5:
        assert not seat.call(suite, "echo").get("isError")
    assert memory_mib(server) - before < MAX_GROWTH_MIB
    seat.call("noisy_suite", "stop")
    notice = until(lambda: dropped_in(seat.log_line()), "the host is told what it has lost")
    assert notice > 0


def dropped_in(line: Json) -> int:
    """How many notifications were dropped, as this log line says."""
    if line.get("logger") != "switchboard":
        return 0
    return int(line["data"].split(" ")[0].replace(",", ""))


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_stays_who_it_is_when_a_reload_replaces_the_mail_server(
    kind: str, workspace: Path, stack: ExitStack
) -> None:
    seat = seated(kind, workspace, stack, mail={"enabled": True})
    registered = seat.call("mail_suite", "register_chat_agent", name="ada")
    assert not registered.get("isError"), registered
    more: Json = {"mail": {"enabled": True}, "timeouts": {"rpcMs": 123_000}}
    kept = "alone" if kind == "continued" else kind
    seat.reload(config_of(kept, **more))
    looked = seat.call("mail_suite", "claim_messages")
    assert not looked.get("isError"), looked


def test_an_agent_stays_who_it_is_when_its_session_is_continued_without_a_broker(
    workspace: Path, stack: ExitStack
) -> None:
    configure(workspace, config_of("broker", mail={"enabled": True}))
    environ = {name: value for name, value in os.environ.items() if name != "SWITCHBOARD_BROKER"}
    host = stack.enter_context(switchboard(workspace, env=environ))
    host.initialize()
    assert not host.call("mail_suite", "register_chat_agent", name="ada").get("isError")
    leave_broker(host, workspace, server_of(host))
    looked = host.call("mail_suite", "claim_messages")
    assert not looked.get("isError"), looked


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_a_server_that_was_killed(kind: str, workspace: Path, stack: ExitStack) -> None:
    add_child(workspace, "quiet", QUIET)
    seat = seated(kind, workspace, stack)
    seat.call("quiet_suite", "echo")
    server = seat.server
    below = tree(server)
    assert below
    os.kill(server, signal.SIGKILL)
    assert not survivors(below, PATIENCE_S)
