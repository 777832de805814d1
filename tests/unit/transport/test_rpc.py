from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import pytest
from msgspec import UNSET, Raw

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import Frame, FrameDecoder, NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.transport.base import OnClosed, OnInvalid, OnMessage
from switchboard_mcp.transport.rpc import AFTER_PAUSE_S, AwaitedRequest, Peer, PendingRequest, next_id
from tests.cases import each_case

T = TypeVar("T")
GONE = failure("child_crashed", "Child 'a' is gone.", child="a")


class ClockLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def settle(self) -> None:
        """Run whatever is due."""

        async def turn() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        self.run_until_complete(turn())

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.settle()


class Script:
    """A link whose other side is the test: it looks at what was sent and says what it likes."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.write_buffer_size = 0
        self.ended = False
        self.paused = False
        self.hear: OnMessage
        self.hear_end: OnClosed
        self.hear_odd: OnInvalid

    def start(self, receive: OnMessage, closed: OnClosed, odd: OnInvalid) -> None:
        self.hear, self.hear_end, self.hear_odd = receive, closed, odd

    def send(self, message: bytes) -> None:
        self.sent.append(json.loads(message))

    def say(self, **members: object) -> None:
        self.hear(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close_sending(self) -> None: ...

    def close(self) -> None: ...


class Listener:
    def __init__(self) -> None:
        self.requests: list[RpcMessage] = []
        self.notifications: list[RpcMessage] = []
        self.babble: list[NonMessage | Oversized | Malformed] = []
        self.ends = 0

    def request_received(self, message: RpcMessage) -> None:
        self.requests.append(message)

    def notification_received(self, message: RpcMessage) -> None:
        self.notifications.append(message)

    def invalid_received(self, noise: NonMessage | Oversized | Malformed) -> None:
        self.babble.append(noise)

    def connection_lost(self) -> None:
        self.ends += 1

    def response_too_large(self, call: PendingRequest, size: int) -> None:
        call.failed(failure("message_too_large", f"{size} bytes"))

    def response_unreadable(self, call: PendingRequest, reason: str) -> None:
        call.failed(failure("child_protocol", reason))


class Probe(PendingRequest):
    """A call that remembers how it ended: exactly once, or the test fails."""

    __slots__ = ("ends", "progress")

    def __init__(self, timeout: float = 10.0) -> None:
        id = next_id()
        super().__init__(id, jsonrpc.request(id, "work"), timeout)
        self.ends: list[object] = []
        self.progress: list[bytes] = []

    @property
    def number(self) -> int:
        return int(self.id)

    def answered(self, answer: RpcMessage) -> None:
        self.ends.append(json.loads(bytes(answer.result)) if answer.result is not UNSET else "no result")

    def failed(self, problem: Failure) -> None:
        self.ends.append(problem.code)

    def timed_out(self) -> None:
        self.ends.append("timed out")

    def progressed(self, params: Raw) -> None:
        self.progress.append(bytes(params))


@pytest.fixture
def loop() -> Iterator[ClockLoop]:
    loop = ClockLoop()
    yield loop
    loop.close()


def new_link() -> Script:
    return Script()


link = pytest.fixture(new_link, name="link")


def new_listener() -> Listener:
    return Listener()


listener = pytest.fixture(new_listener, name="listener")


def new_peer(loop: ClockLoop, link: Script, listener: Listener) -> Peer:
    peer = Peer(loop, link, listener)
    peer.start()
    return peer


peer = pytest.fixture(new_peer, name="peer")


def begin(peer: Peer, *timeouts: float) -> list[Probe]:
    calls = [Probe(timeout) for timeout in timeouts]
    for call in calls:
        peer.send(call)
    return calls


def cancelled(link: Script) -> list[object]:
    """The ids the other side was told to stop."""
    return [each["params"]["requestId"] for each in link.sent if each["method"] == "notifications/cancelled"]


class TestAnswers:
    def test_requests_under_way_together_are_answered_in_any_order(self, peer: Peer, link: Script) -> None:
        calls = begin(peer, *[10.0] * 50)
        assert [each["id"] for each in link.sent] == [call.number for call in calls]
        for call in reversed(calls):
            link.say(id=call.number, result={"for": call.number})
        assert [call.ends for call in calls] == [[{"for": call.number}] for call in calls]
        assert peer.pending == {}
        assert peer.response_count == 50

    def test_an_error_is_an_answer(self, peer: Peer, link: Script) -> None:
        (call,) = begin(peer, 10)
        link.say(id=call.number, error={"code": 1, "message": "no"})
        assert call.ends == ["no result"]

    def test_an_answer_without_result_and_error_ends_the_call(self, peer: Peer, link: Script) -> None:
        (call,) = begin(peer, 10)
        link.say(id=call.number)
        assert call.ends == ["no result"]

    def test_a_request_that_reuses_a_pending_id_does_not_resolve_it(
        self, peer: Peer, link: Script, listener: Listener
    ) -> None:
        (call,) = begin(peer, 10)
        link.say(id=call.number, method="ping")
        link.say(id=call.number, method="roots/list", result={"trap": 1})
        assert call.ends == []
        assert [message.method for message in listener.requests] == ["ping", "roots/list"]
        link.say(id=call.number, result="real")
        assert call.ends == ["real"]

    def test_a_second_answer_is_ignored(self, peer: Peer, link: Script, listener: Listener) -> None:
        (call,) = begin(peer, 10)
        link.say(id=call.number, result="first")
        link.say(id=call.number, result="second")
        link.say(id=call.number, error={"code": 1})
        assert call.ends == ["first"]
        assert peer.response_count == 1
        assert listener.babble == []

    def test_answers_to_nothing_are_ignored(self, peer: Peer, link: Script, listener: Listener) -> None:
        (call,) = begin(peer, 10)
        id: object
        for id in (call.number + 1000, str(call.number), float(call.number) + 0.5, None, [call.number], {}):
            link.say(id=id, result="wrong")
        link.say(result="no id")
        link.say(error={"code": -32700, "message": "parse error"})
        link.say()
        assert call.ends == []
        assert listener.requests == listener.notifications == []
        link.say(id=call.number, result="right")
        assert call.ends == ["right"]

    def test_answers_of_one_batch_reach_their_calls(
        self, peer: Peer, link: Script, listener: Listener
    ) -> None:
        first, second = begin(peer, 10, 10)
        link.hear(
            json.dumps(
                [
                    {"jsonrpc": "2.0", "id": second.number, "result": 2},
                    {"jsonrpc": "2.0", "method": "notifications/x"},
                    7,
                    {"jsonrpc": "2.0", "id": 5, "method": "ping"},
                    {"jsonrpc": "2.0", "id": first.number, "result": 1},
                ]
            ).encode()
        )
        assert (first.ends, second.ends) == ([1], [2])
        assert [message.method for message in listener.notifications] == ["notifications/x"]
        assert [message.method for message in listener.requests] == ["ping"]

    @each_case("depth", [3, 300, 100_000], link=new_link, listener=new_listener, peer=new_peer)
    def test_batches_within_batches_do_no_harm(self, peer: Peer, link: Script, depth: int) -> None:
        (call,) = begin(peer, 10)
        inner = b'{"jsonrpc":"2.0","id":%d,"result":1}' % call.number
        link.hear(b"[" * depth + inner + b"]" * depth)
        link.say(id=call.number, result="real")
        assert call.ends == ["real"]

    def test_bad_utf8_and_half_an_emoji_in_an_answer_are_replaced(self, peer: Peer, link: Script) -> None:
        first, second = begin(peer, 10, 10)
        link.hear(b'{"jsonrpc":"2.0","id":%d,"result":"caf\xe9"}' % first.number)
        link.hear(b'{"jsonrpc":"2.0","id":%d,"result":"\\ud83d!"}' % second.number)
        assert (first.ends, second.ends) == (["caf�"], ["�!"])


class TestOtherMessages:
    def test_a_notification_is_reported(self, peer: Peer, link: Script, listener: Listener) -> None:
        link.say(method="notifications/message", params={"level": "info"})
        assert [message.method for message in listener.notifications] == ["notifications/message"]

    def test_an_id_of_null_makes_no_request(self, peer: Peer, link: Script, listener: Listener) -> None:
        link.say(id=None, method="notifications/message")
        assert listener.requests == []
        assert len(listener.notifications) == 1

    @each_case(
        "data",
        [b"{", b"[", b'{"jsonrpc":"2.0","method":5}', b"", b'"text"', b"[1,]"],
        link=new_link,
        listener=new_listener,
        peer=new_peer,
    )
    def test_unreadable_data_is_reported_as_noise(
        self, peer: Peer, link: Script, listener: Listener, data: bytes
    ) -> None:
        link.hear(data)
        assert [type(piece) for piece in listener.babble] == [Malformed]

    def test_noise_is_babble(self, peer: Peer, link: Script, listener: Listener) -> None:
        link.hear_odd(NonMessage(b"log line"))
        assert listener.babble == [NonMessage(b"log line")]

    def test_the_end_of_the_link_is_reported_and_leaves_the_calls_to_the_owner(
        self, peer: Peer, link: Script, listener: Listener
    ) -> None:
        (call,) = begin(peer, 10)
        link.hear_end()
        assert listener.ends == 1
        assert call.ends == []

    def test_a_notification_is_sent_with_and_without_params(self, peer: Peer, link: Script) -> None:
        peer.notify("a")
        peer.notify("b", b'{"c":1}')
        assert link.sent == [
            {"jsonrpc": "2.0", "method": "a"},
            {"jsonrpc": "2.0", "method": "b", "params": {"c": 1}},
        ]


class TestUnreadableAnswers:
    @each_case(
        "data",
        [
            b'{"jsonrpc":"2.0","id":%d,"result":{"nan":NaN}}',
            b'{"jsonrpc":"2.0","id":%d,"result":"cut off',
            b'{"jsonrpc":"2.0","id":%d,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b'{"result":{"a":Infinity},"jsonrpc":"2.0","id":%d}',
        ],
        ids=["NaN", "cut off", "deep", "id last"],
        link=new_link,
        listener=new_listener,
        peer=new_peer,
    )
    def test_an_answer_that_is_no_json_fails_its_call_at_once(
        self, peer: Peer, link: Script, listener: Listener, data: bytes
    ) -> None:
        other, call = begin(peer, 10, 10)
        link.hear(data % call.number)
        assert call.ends == ["child_protocol"]
        assert other.ends == []
        assert listener.babble == []

    def test_an_answer_cut_short_by_the_end_of_the_link_is_part_of_that_end(
        self, peer: Peer, link: Script, listener: Listener
    ) -> None:
        (call,) = begin(peer, 10)
        link.ended = True
        link.hear(b'{"jsonrpc":"2.0","id":%d,"result":{"cut' % call.number)
        assert call.ends == []
        assert len(listener.babble) == 1
        peer.fail_all(GONE)
        assert call.ends == ["child_crashed"]

    @each_case("framed", [False, True], ids=["newline", "content-length"])
    @each_case(
        "form",
        [b'{"jsonrpc":"2.0","id":%d,"result":"%b"}', b'{"result":"%b","jsonrpc":"2.0","id":%d}'],
        link=new_link,
        listener=new_listener,
        peer=new_peer,
    )
    def test_an_oversized_answer_fails_the_one_call(
        self, peer: Peer, link: Script, listener: Listener, framed: bool, form: bytes
    ) -> None:
        before, call, after = begin(peer, 10, 10, 10)
        filler = b"x" * 5000
        values = (call.number, filler) if form.index(b"%d") < form.index(b"%b") else (filler, call.number)
        for piece in cut(form % values, framed):
            assert isinstance(piece, Oversized)
            link.hear_odd(piece)
        link.say(id=after.number, result=3)
        link.say(id=before.number, result=1)
        assert (before.ends, call.ends, after.ends) == ([1], ["message_too_large"], [3])
        assert listener.babble == []

    def test_an_oversized_request_that_reuses_a_pending_id_does_not_resolve_it(
        self, peer: Peer, link: Script, listener: Listener
    ) -> None:
        (call,) = begin(peer, 10)
        forms = (
            b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":"%b"}'
            % (call.number, b"x" * 5000),
            b'{"method":"sampling/createMessage","params":"%b","jsonrpc":"2.0","id":%d}'
            % (b"x" * 5000, call.number),
        )
        for form in forms:
            for piece in cut(form, framed=False):
                assert isinstance(piece, Oversized)
                link.hear_odd(piece)
        assert call.ends == []
        assert len(listener.babble) == 2

    def test_an_oversized_answer_to_nothing_is_babble(
        self, peer: Peer, link: Script, listener: Listener
    ) -> None:
        (call,) = begin(peer, 10)
        for piece in cut(b'{"jsonrpc":"2.0","id":"?","result":"%b"}' % (b"x" * 5000), framed=False):
            assert isinstance(piece, Oversized)
            link.hear_odd(piece)
        assert call.ends == []
        assert len(listener.babble) == 1


def cut(message: bytes, framed: bool) -> list[Frame]:
    splitter = FrameDecoder(limit=1000)
    return splitter.feed(
        b"Content-Length: %d\r\n\r\n%b" % (len(message), message) if framed else message + b"\n"
    )


class TestDeadlines:
    def test_a_call_without_an_answer_ends_once_and_the_other_side_is_told(
        self, peer: Peer, link: Script, loop: ClockLoop
    ) -> None:
        (call,) = begin(peer, 10)
        loop.advance(9.9)
        assert call.ends == []
        loop.advance(0.2)
        assert call.ends == ["timed out"]
        assert link.sent[-1] == {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": call.number, "reason": "timeout"},
        }
        link.say(id=call.number, result="late")
        loop.advance(100)
        assert call.ends == ["timed out"]
        assert cancelled(link) == [call.number]
        assert peer.response_count == 0

    def test_each_call_has_its_own_deadline(self, peer: Peer, link: Script, loop: ClockLoop) -> None:
        slow, quick, middle = begin(peer, 30, 1, 5)
        loop.advance(1)
        assert [call.ends for call in (slow, quick, middle)] == [[], ["timed out"], []]
        loop.advance(4)
        assert [call.ends for call in (slow, middle)] == [[], ["timed out"]]
        loop.advance(25)
        assert slow.ends == ["timed out"]
        assert cancelled(link) == [quick.number, middle.number, slow.number]

    def test_a_later_call_with_an_earlier_deadline_is_not_forgotten(
        self, peer: Peer, loop: ClockLoop
    ) -> None:
        (slow,) = begin(peer, 60)
        loop.advance(1)
        (quick,) = begin(peer, 2)
        loop.advance(2)
        assert quick.ends == ["timed out"]
        assert slow.ends == []

    def test_after_all_is_quiet_a_new_call_is_watched_again(
        self, peer: Peer, link: Script, loop: ClockLoop
    ) -> None:
        (first,) = begin(peer, 5)
        link.say(id=first.number, result=1)
        loop.advance(50)
        (second,) = begin(peer, 5)
        loop.advance(5)
        assert second.ends == ["timed out"]

    def test_an_answer_in_time_tells_nobody_to_stop(self, peer: Peer, link: Script, loop: ClockLoop) -> None:
        (call,) = begin(peer, 5)
        loop.advance(4)
        link.say(id=call.number, result=1)
        loop.advance(10)
        assert call.ends == [1]
        assert cancelled(link) == []

    def test_progress_starts_the_time_anew(self, peer: Peer, link: Script, loop: ClockLoop) -> None:
        working, silent = begin(peer, 10, 10)
        for _ in range(5):
            loop.advance(8)
            link.say(method="notifications/progress", params={"progressToken": working.number, "progress": 1})
        assert silent.ends == ["timed out"]
        assert working.ends == []
        assert len(working.progress) == 5
        assert json.loads(working.progress[0]) == {"progressToken": working.number, "progress": 1}
        loop.advance(10)
        assert working.ends == ["timed out"]

    @each_case(
        "params",
        [
            None,
            {},
            [],
            {"progressToken": None},
            {"progressToken": "x"},
            {"progressToken": [1]},
            {"progressToken": 10**9},
            "text",
        ],
        link=new_link,
        listener=new_listener,
        peer=new_peer,
    )
    def test_progress_of_nothing_is_ignored(
        self, peer: Peer, link: Script, loop: ClockLoop, listener: Listener, params: object
    ) -> None:
        (call,) = begin(peer, 10)
        loop.advance(8)
        link.say(method="notifications/progress", params=params)
        link.say(method="notifications/progress")
        loop.advance(3)
        assert call.ends == ["timed out"]
        assert call.progress == []
        assert listener.notifications == []
        assert listener.babble == []

    def test_no_deadline_passes_while_nothing_is_read(
        self, peer: Peer, link: Script, loop: ClockLoop
    ) -> None:
        answered, silent = begin(peer, 10, 10)
        link.pause()
        for _ in range(10):
            loop.advance(10)
        assert answered.ends == silent.ends == []
        link.resume()
        link.say(id=answered.number, result="was there all the time")
        loop.advance(AFTER_PAUSE_S)
        assert answered.ends == ["was there all the time"]
        assert silent.ends == ["timed out"]

    def test_a_late_call_that_ends_another_late_one_does_not_end_it_twice(
        self, peer: Peer, link: Script, loop: ClockLoop
    ) -> None:
        class Jealous(Probe):
            __slots__ = ("rival",)
            rival: Probe

            def timed_out(self) -> None:
                super().timed_out()
                peer.cancel(self.rival, "not needed any more")

        first, second = Jealous(5), Jealous(5)
        first.rival, second.rival = second, first
        peer.send(first)
        peer.send(second)
        loop.advance(5)
        assert first.ends == ["timed out"]
        assert second.ends == []
        assert cancelled(link) == [first.number, second.number]

    def test_a_late_call_that_fails_to_end_does_not_keep_the_others_waiting(
        self, peer: Peer, loop: ClockLoop
    ) -> None:
        problems: list[object] = []
        loop.set_exception_handler(lambda _loop, context: problems.append(context["exception"]))

        class Broken(Probe):
            __slots__ = ()

            def timed_out(self) -> None:
                raise ValueError("a surprise")

        peer.send(Broken(5))
        (same, later) = begin(peer, 5, 9)
        loop.advance(5)
        loop.settle()
        assert same.ends == ["timed out"]
        loop.advance(4)
        assert later.ends == ["timed out"]
        assert len(problems) == 1


class TestCancellation:
    def test_the_other_side_is_told_why_and_the_answer_is_ignored(
        self, peer: Peer, link: Script, loop: ClockLoop
    ) -> None:
        (call,) = begin(peer, 10)
        assert peer.cancel(call, 'host said "stop"')
        assert link.sent[-1]["params"] == {"requestId": call.number, "reason": 'host said "stop"'}
        link.say(id=call.number, result="late")
        link.say(method="notifications/progress", params={"progressToken": call.number})
        loop.advance(20)
        assert call.ends == []
        assert call.progress == []

    def test_it_is_reported_once(self, peer: Peer, link: Script) -> None:
        (call,) = begin(peer, 10)
        assert peer.cancel(call, "a")
        assert not peer.cancel(call, "b")
        assert cancelled(link) == [call.number]

    def test_an_answered_call_cannot_be_cancelled(self, peer: Peer, link: Script) -> None:
        (call,) = begin(peer, 10)
        link.say(id=call.number, result=1)
        assert not peer.cancel(call, "late")
        assert cancelled(link) == []


class TestTheEnd:
    def test_a_call_whose_answer_is_lost_fails_alone_and_once(self, peer: Peer, link: Script) -> None:
        lost, other = begin(peer, 10, 10)
        peer.fail(lost.id, GONE)
        peer.fail(lost.id, GONE)
        link.say(id=lost.number, result="late")
        link.say(id=other.number, result=1)
        assert (lost.ends, other.ends) == (["child_crashed"], [1])
        assert cancelled(link) == []

    def test_calls_that_are_taken_back_are_not_failed(
        self, peer: Peer, link: Script, loop: ClockLoop
    ) -> None:
        class Patient(Probe):
            __slots__ = ()

        patient = Patient()
        peer.send(patient)
        (other,) = begin(peer, 10)
        assert peer.reclaim(Patient) == [patient]
        peer.fail_all(GONE)
        loop.advance(20)
        assert (patient.ends, other.ends) == ([], ["child_crashed"])
        assert cancelled(link) == []

    def test_every_open_call_fails_once(self, peer: Peer, link: Script, loop: ClockLoop) -> None:
        answered, *open_ones = begin(peer, 10, 10, 10)
        link.say(id=answered.number, result=1)
        peer.fail_all(GONE)
        peer.fail_all(GONE)
        for call in open_ones:
            link.say(id=call.number, result="late")
        loop.advance(20)
        assert answered.ends == [1]
        assert [call.ends for call in open_ones] == [["child_crashed"]] * 2
        assert cancelled(link) == []

    def test_a_call_made_afterwards_fails_at_once(self, peer: Peer, loop: ClockLoop) -> None:
        peer.fail_all(GONE)
        first, second = begin(peer, 10, 5)
        assert (first.ends, second.ends) == (["child_crashed"], ["child_crashed"])
        assert peer.pending == {}

    def test_a_call_made_while_others_fail_fails_too(self, peer: Peer, loop: ClockLoop) -> None:
        again: list[Probe] = []

        class Stubborn(Probe):
            __slots__ = ()

            def failed(self, problem: Failure) -> None:
                super().failed(problem)
                again.extend(begin(peer, 60))

        calls = [Stubborn(5), Stubborn(5)]
        for call in calls:
            peer.send(call)
        peer.fail_all(GONE)
        assert [call.ends for call in (*calls, *again)] == [["child_crashed"]] * 4

    def test_a_call_that_cannot_be_failed_does_not_keep_the_others_waiting(
        self, peer: Peer, loop: ClockLoop
    ) -> None:
        class Broken(Probe):
            __slots__ = ()

            def failed(self, problem: Failure) -> None:
                raise ValueError("a surprise")

        peer.send(Broken())
        (other,) = begin(peer, 10)
        with pytest.raises(ValueError, match="a surprise"):
            peer.fail_all(GONE)
        loop.settle()
        assert other.ends == ["child_crashed"]


class TestInquire:
    def run(self, loop: ClockLoop, question: Awaitable[T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(question, loop=loop)
        loop.settle()
        return task

    def test_the_answer_comes_back(self, peer: Peer, link: Script, loop: ClockLoop) -> None:
        task = self.run(loop, peer.request("tools/list", b'{"cursor":"x"}', 5))
        (sent,) = link.sent
        assert (sent["method"], sent["params"]) == ("tools/list", {"cursor": "x"})
        link.say(id=sent["id"], result=[1])
        loop.settle()
        answer = task.result()
        assert isinstance(answer, RpcMessage)
        assert answer.result is not UNSET
        assert bytes(answer.result) == b"[1]"

    def test_too_late_is_none(self, peer: Peer, loop: ClockLoop) -> None:
        task = self.run(loop, peer.request("a", b"{}", 5))
        loop.advance(5)
        assert task.result() is None

    def test_a_failure_comes_back(self, peer: Peer, loop: ClockLoop) -> None:
        task = self.run(loop, peer.request("a", b"{}", 5))
        peer.fail_all(GONE)
        loop.settle()
        assert task.result() == GONE
        assert self.run(loop, peer.request("b", b"{}", 5)).result() == GONE

    def test_a_cancelled_wait_is_sent_to_the_other_side(
        self, peer: Peer, link: Script, loop: ClockLoop
    ) -> None:
        task = self.run(loop, peer.request("a", b"{}", 5))
        task.cancel()
        loop.settle()
        assert task.cancelled()
        assert cancelled(link) == [link.sent[0]["id"]]
        assert peer.pending == {}
        link.say(id=link.sent[0]["id"], result="late")

    def test_an_inquiry_settles_once(self, loop: ClockLoop) -> None:
        inquiry = AwaitedRequest(loop, "a", b"{}", 5)
        inquiry.failed(GONE)
        inquiry.timed_out()
        inquiry.answered(RpcMessage())
        assert inquiry.future.result() == GONE


def test_ids_are_unique_numbers() -> None:
    ids = [next_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(id.isdigit() for id in ids)
