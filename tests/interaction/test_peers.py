"""A conversation between two peers, over every transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from msgspec import UNSET

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.rpc import Peer, PendingRequest
from tests.interaction.conftest import Join

GONE = failure("child_crashed", "The other side is gone.")


class Side:
    """One end of a conversation. Requests go to `answer`, which may answer at once, later or never."""

    def __init__(self, link: MessageTransport, answer: Callable[[Side, RpcMessage], None]) -> None:
        self.peer = Peer(asyncio.get_running_loop(), link, self)
        self.answer = answer
        self.notifications: list[str] = []
        self.babble: list[NonMessage | Oversized | Malformed] = []
        self.told = asyncio.Event()
        self.peer.start()

    def request_received(self, message: RpcMessage) -> None:
        self.answer(self, message)

    def notification_received(self, message: RpcMessage) -> None:
        assert message.method is not UNSET
        self.notifications.append(message.method)
        self.told.set()

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        self.babble.append(noise)

    def connection_lost(self) -> None:
        self.peer.fail_all(GONE)

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        call.failed(GONE)

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        call.failed(GONE)

    def reply(self, message: RpcMessage) -> None:
        """Answer a request with its own params."""
        assert message.id is not UNSET
        assert message.params is not UNSET
        self.peer.transport.send(jsonrpc.result(message.id, message.params))

    async def ask(self, number: int) -> object:
        answer = await self.peer.request("echo", json.dumps({"number": number}).encode(), 10)
        if isinstance(answer, RpcMessage):
            assert answer.result is not UNSET
            return json.loads(bytes(answer.result))["number"]
        return answer


def never(side: Side, message: RpcMessage) -> None:
    """Leave a request without an answer."""


async def test_requests_under_way_together_get_their_own_answers(join: Join) -> None:
    left, right = join()
    asker, _ = Side(left, never), Side(right, Side.reply)
    assert await asyncio.gather(*(asker.ask(number) for number in range(500))) == list(range(500))
    assert asker.peer.pending == {}


async def test_answers_may_come_in_any_order(join: Join) -> None:
    left, right = join()
    held: list[RpcMessage] = []

    def hold(side: Side, message: RpcMessage) -> None:
        held.append(message)
        if len(held) == 50:
            for each in reversed(held):
                side.reply(each)

    asker, _ = Side(left, never), Side(right, hold)
    assert await asyncio.gather(*(asker.ask(number) for number in range(50))) == list(range(50))


async def test_both_sides_may_ask_at_once(join: Join) -> None:
    left, right = join()
    sides = Side(left, Side.reply), Side(right, Side.reply)
    answers = await asyncio.gather(*(side.ask(number) for number in range(100) for side in sides))
    assert answers == [number for number in range(100) for _ in sides]


async def test_a_side_that_asks_back_under_the_same_id_is_answered_and_answers(join: Join) -> None:
    left, right = join()
    heard: list[RpcMessage] = []

    def ask_back(side: Side, message: RpcMessage) -> None:
        assert message.id is not UNSET
        side.peer.transport.send(jsonrpc.request(bytes(message.id), "ping"))
        heard.append(message)

    def answer_ping(side: Side, message: RpcMessage) -> None:
        assert message.method == "ping"
        side.peer.transport.send(jsonrpc.notification("pinged"))

    asker, other = Side(left, answer_ping), Side(right, ask_back)
    task = asyncio.create_task(asker.ask(7))
    await other.told.wait()
    assert not task.done()
    other.reply(heard[0])
    assert await task == 7


async def test_the_end_of_the_link_fails_what_is_open_and_what_comes_after(join: Join) -> None:
    left, right = join()
    asker, other = Side(left, never), Side(right, never)
    tasks = [asyncio.create_task(asker.ask(number)) for number in range(5)]
    await asyncio.sleep(0)
    other.peer.transport.close()
    results: list[object] = await asyncio.gather(*tasks)
    assert results == [GONE] * 5
    assert isinstance(await asker.ask(6), Failure)


async def test_notifications_keep_their_order(join: Join) -> None:
    left, right = join()
    teller, hearer = Side(left, never), Side(right, never)
    names = [f"notifications/{number}" for number in range(100)]
    for name in names:
        teller.peer.notify(name)
    while len(hearer.notifications) < len(names):
        hearer.told.clear()
        await hearer.told.wait()
    assert hearer.notifications == names
