"""A session that the next process continues: each open request is answered once, whatever is in the journal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from switchboard_mcp.config.models import Config
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import local_host
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.server.handed_over import HandedOverHost
from switchboard_mcp.transport.flow_control import FlowControl
from switchboard_mcp.transport.session_journal import REWIND_AT, Journal
from switchboard_mcp.transport.stdio import Cork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the broker needs Linux")

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}
RECEIVED: list[dict[str, Any]] = [
    {"id": 0, "method": "initialize", "params": INITIALIZE},
    {"method": "notifications/initialized"},
    {"id": 7, "method": "ping"},
    {"id": 8, "method": "tools/call", "params": {"name": "x", "arguments": {}}},
]


class Died(BaseException):
    """Ends a process in the middle."""


class LeftSession:
    """The pipes and the journal of a session whose broker has died right after much output, all of which was taken."""

    def __init__(self) -> None:
        self._source, writing = os.pipe()
        self._reading, self._target = os.pipe()
        os.set_blocking(self._reading, False)
        self._memory = os.memfd_create("test")
        os.write(
            writing, b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in RECEIVED)
        )
        os.close(writing)
        journal = self.journal()
        journal.read(self._source)
        journal.append(b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
        while journal.end < REWIND_AT:
            line = b'{"jsonrpc":"2.0","method":"x","params":{"y":"%b"}}\n' % (b"z" * 4096)
            journal.write(self._target, line)
            self.output()
        journal.close()

    def journal(self) -> Journal:
        return Journal(os.dup(self._memory))

    def output(self) -> bytes:
        try:
            return os.read(self._reading, 1 << 20)
        except BlockingIOError:
            return b""

    def take_over(self) -> list[dict[str, Any]]:
        """Continue the session; return what its host reads then."""
        log = Log(level="error", write=lambda line: None)
        flow_control = FlowControl()
        gateway = Gateway([], Config(), log, asyncio.get_running_loop(), flow_control)
        descriptors = os.dup(self._source), os.dup(self._target)
        host = HandedOverHost(gateway, Cork(), flow_control, local_host(""), descriptors, self.journal(), log)
        host.abandon()
        host.close()
        return [json.loads(line) for line in self.output().splitlines()]

    def close(self) -> None:
        for descriptor in (self._source, self._target, self._reading, self._memory):
            os.close(descriptor)


@pytest.fixture
def left() -> Iterator[LeftSession]:
    """A session without a broker."""
    session = LeftSession()
    yield session
    session.close()


async def test_open_requests_are_answered_once_also_if_the_output_starts_over(left: LeftSession) -> None:
    ping, call = left.take_over()
    assert (ping["id"], ping["result"]) == (7, {})
    assert call["id"] == 8
    assert call["error"]["data"]["error"]["code"] == "interrupted"
    assert left.take_over() == []


async def test_a_request_that_is_not_answered_yet_is_kept_when_the_output_starts_over(
    left: LeftSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> bytes:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(jsonrpc, "error_body", die)
        with pytest.raises(Died):
            left.take_over()
    left.output()
    (call,) = left.take_over()
    assert call["error"]["data"]["error"]["code"] == "interrupted"
