"""The journal of a session: whoever opens it next knows what was read, what was sent, and what is still open."""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import socket
from collections import Counter
from collections.abc import Callable

import pytest

from switchboard_mcp.protocol.framing import FrameDecoder
from switchboard_mcp.protocol.session_record import (
    ReceivedRequest,
    SessionRecord,
    find_requests,
    read_session,
)
from switchboard_mcp.transport import session_journal as journals
from switchboard_mcp.transport.session_journal import Journal, JournalError, OpenRequests, open_journaled
from switchboard_mcp.transport.stdio import Cork
from tests.cases import each_case
from tests.patience import PATIENCE_S


def line(method: str, id: object = None, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if id is None else {**message, "id": id}).encode()


def result(id: object) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % json.dumps(id).encode()


INITIALIZE, INITIALIZED = line("initialize", 0), line("notifications/initialized")
LEVEL = line("logging/setLevel", 1, level="debug")
WATCH, UNWATCH = line("resources/subscribe", 2, uri="a"), line("resources/unsubscribe", 3, uri="a")
CALL = line("tools/call", 4, name="x")


@each_case(
    ("received", "sent", "kept", "open_ids"),
    [
        ([INITIALIZE], [], [], [b"0"]),
        ([INITIALIZE, INITIALIZED], [result(0)], [INITIALIZE, INITIALIZED], []),
        ([INITIALIZE, LEVEL, WATCH], [result(0), result(1), result(2)], [INITIALIZE, LEVEL, WATCH], []),
        ([WATCH, UNWATCH], [result(2), result(3)], [], []),
        ([WATCH, UNWATCH], [result(2)], [], [b"3"]),
        ([CALL, CALL], [result(4)], [], [b"4"]),
        ([CALL, CALL], [result(4), result(4)], [], []),
        ([CALL, line("notifications/cancelled", requestId=4)], [], [], []),
        ([CALL, line("notifications/cancelled", requestId=4), CALL], [result(4)], [], [b"4"]),
        ([b"[" + CALL + b"," + INITIALIZE + b"]"], [result(0)], [INITIALIZE], [b"4"]),
        ([line("tools/call", "a,")], [b'{"jsonrpc":"2.0","id":"a,","result":{}}'], [], []),
        ([line("tools/call", "a")], [b'{"result":{},"id":"a","jsonrpc":"2.0"}'], [], []),
        ([CALL], [b'{"jsonrpc":"2.0","id":4,"method":"ping","params":{"x":{},"result":1}}'], [], [b"4"]),
        ([b'{"jsonrpc":"2.0","id":4,"result":{}}', b'{"jsonrpc":"2.0"}', b"{"], [], [], []),
    ],
)
def test_a_session_is_read_from_its_messages(
    received: list[bytes], sent: list[bytes], kept: list[bytes], open_ids: list[bytes]
) -> None:
    record = read_session([], received, sent)
    assert record.kept == kept
    assert [request.id for request in record.open] == open_ids


@each_case(
    ("received", "ids", "found"),
    [
        ([line("a", 1), line("b", 2), line("c", 3)], {b"3", b"1"}, ["a", "c"]),
        ([line("a", 1), line("b", 1)], {b"1"}, ["b"]),
        ([line("a", 1)], {b"1", b"2"}, None),
        ([b"{", line("a", 1)], {b"1"}, ["a"]),
        ([line("a", 1), b"{"], {b"1"}, None),
        ([b"[" + CALL + b"]"], {b"4"}, None),
        ([result(1)], {b"1"}, None),
        ([], set(), []),
    ],
)
def test_requests_are_found_from_the_last_one_back(
    received: list[bytes], ids: set[bytes], found: list[str] | None
) -> None:
    before, text = b"{}\n", b"".join(message + b"\n" for message in received)
    requests = find_requests(before + text + before, len(before), len(before + text), ids)
    assert (None if requests is None else [request.method for request in requests]) == found


def test_only_what_changes_nothing_is_served_again() -> None:
    assert ReceivedRequest(b"1", "tools/list", b"").repeatable
    call = ReceivedRequest(b"4", "tools/call", CALL)
    assert not call.repeatable
    assert call.shortened() is call
    long = ReceivedRequest(b"4", "tools/call", line("tools/call", 4, text="z" * 1000))
    assert json.loads(long.shortened().line) == {
        "jsonrpc": "2.0",
        "id": 4,
        "method": "tools/call",
        "params": {},
    }


class Sides:
    """A host on pipes or a socket pair, and the transport to it; `crash` loses all memory of the transport."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        sockets: bool,
        open_requests: Callable[[], OpenRequests] | None = None,
    ) -> None:
        self.loop = loop
        self.open_requests = open_requests
        self.memory = os.memfd_create("test")
        if sockets:
            ours, theirs = socket.socketpair()
            self.read_fd = self.write_fd = ours.detach()
            self.host_in = self.host_out = theirs.detach()
        else:
            self.read_fd, self.host_out = os.pipe()
            self.host_in, self.write_fd = os.pipe()
        os.set_blocking(self.host_in, False)
        os.set_blocking(self.host_out, False)
        self.received = b""
        self.open()

    def open(self) -> None:
        self.journal = Journal(os.dup(self.memory))

        def fail(problem: Exception) -> None:
            raise problem

        self.link = open_journaled(
            self.loop,
            (os.dup(self.read_fd), os.dup(self.write_fd)),
            Cork(),
            self.journal,
            on_congestion=lambda slow: None,
            on_broken=lambda: None,
            on_error=fail,
            open_requests=self.open_requests,
        )

    def crash(self) -> None:
        """Forget everything but the descriptors, as a new process does. Positions are shared by duplicates."""
        self.link.close()
        self.journal.close()
        self.open()

    def restore(self) -> SessionRecord:
        continued = self.journal.continued()
        self.link.restore(continued.unfinished, continued.unsent, uses_headers=continued.uses_headers)
        return continued.record

    def hear(self) -> None:
        try:
            self.received += os.read(self.host_in, 1 << 20)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self.link.close()
        self.journal.close()
        for descriptor in {self.read_fd, self.write_fd, self.host_in, self.host_out, self.memory}:
            os.close(descriptor)


@pytest.fixture
def in_loop() -> Callable[[Callable[[asyncio.AbstractEventLoop], None]], None]:
    def run(test: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        async def main() -> None:
            test(asyncio.get_running_loop())

        asyncio.run(main())

    return run


InLoop = Callable[[Callable[[asyncio.AbstractEventLoop], None]], None]


class Torture:
    """A host that sends and reads in random pieces, a server that answers in random order, and random crashes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pending: list[bytes] = []
        known = None if seed < 2 else lambda: OpenRequests(dict.fromkeys(self.pending), established=True)
        self.sides = Sides(loop, sockets=bool(seed % 2), open_requests=known)
        self.requests = 0
        self.unwritten = b""
        self.start()

    def start(self) -> None:
        self.sides.link.start(self.receive, lambda: None, lambda piece: None)

    def receive(self, message: bytes) -> None:
        self.pending.append(b"%d" % json.loads(message)["id"])

    def answer(self, id: bytes) -> None:
        size = 300_000 if self.chance.random() < 0.05 else 10
        self.sides.link.answer(b'{"jsonrpc":"2.0","id":%b,"result":{"x":"%b"}}' % (id, b"x" * size))

    def ask(self) -> None:
        size = 200_000 if self.chance.random() < 0.03 else 20
        self.unwritten += line("tools/call", self.requests, text="y" * size) + b"\n"
        self.requests += 1

    def write(self, count: int) -> None:
        try:
            self.unwritten = self.unwritten[os.write(self.sides.host_out, self.unwritten[:count]) :]
        except BlockingIOError:
            pass

    def read(self) -> None:
        if _has_input(self.sides.link._read_fd):
            self.sides.link._readable()

    def crash(self) -> None:
        self.sides.crash()
        record = self.sides.restore()
        self.start()
        self.pending = []
        for request in record.open:
            self.answer(request.id)

    def step(self) -> None:
        chance = self.chance.random()
        if chance < 0.4:
            self.ask()
        self.write(self.chance.choice((7, 60, 70_000)))
        if chance < 0.7:
            self.read()
        if self.pending and chance > 0.5:
            self.answer(self.pending.pop(self.chance.randrange(len(self.pending))))
        if chance > 0.3:
            self.sides.hear()
            self.sides.link.flush()
        if self.chance.random() < 0.03:
            self.crash()

    def finish(self) -> None:
        while self.unwritten or _has_input(self.sides.link._read_fd):
            self.write(4096)
            self.read()
        self.crash()
        while self.sides.journal.unsent:
            self.sides.hear()
            self.sides.link.flush()
        self.sides.hear()


@pytest.mark.parametrize("compact_bytes", [1000, journals.COMPACT_BYTES])
@pytest.mark.parametrize("seed", range(4))
def test_every_request_is_answered_once_over_any_number_of_crashes(
    in_loop: InLoop, seed: int, compact_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "COMPACT_BYTES", compact_bytes)

    def test(loop: asyncio.AbstractEventLoop) -> None:
        torture = Torture(loop, seed)
        for _ in range(1000):
            torture.step()
        torture.finish()
        frames = FrameDecoder().feed(torture.sides.received)
        answered = Counter(json.loads(frame)["id"] for frame in frames if isinstance(frame, bytes))
        assert answered == Counter(range(torture.requests))
        torture.sides.close()

    in_loop(test)


def _has_input(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


async def test_after_output_of_an_earlier_process_comes_that_of_the_next() -> None:
    loop = asyncio.get_running_loop()
    sides = Sides(loop, sockets=False)
    sides.journal.append(result(1) + b"\n")  # and the process ends before it is sent
    sides.crash()
    sides.restore()
    sides.link.answer(result(2))
    async with asyncio.timeout(PATIENCE_S):
        while sides.received.count(b"\n") < 2:
            await asyncio.sleep(0)
            sides.hear()
    sides.link.answer(result(3))
    sides.hear()
    assert sides.received.splitlines() == [result(1), result(2), result(3)]
    sides.close()


def test_the_handshake_of_a_session_is_kept_through_much_traffic(in_loop: InLoop) -> None:
    def test(loop: asyncio.AbstractEventLoop) -> None:
        sides = Sides(loop, sockets=False)
        seen: list[bytes] = []
        sides.link.start(seen.append, lambda: None, lambda piece: None)

        def send(message: bytes) -> None:
            os.write(sides.host_out, message + b"\n")
            sides.link._readable()

        for message, id in ((INITIALIZE, 0), (INITIALIZED, None), (LEVEL, 1), (WATCH, 2)):
            send(message)
            if id is not None:
                sides.link.answer(result(id))
        for id in range(10, 3010):
            send(line("tools/call", id, text="z" * 100))
            if id != 500:
                sides.link.answer(result(id))
            sides.hear()
        sides.crash()
        record = sides.journal.continued().record
        assert record.kept == [INITIALIZE, INITIALIZED, LEVEL, WATCH]
        assert [request.id for request in record.open] == [b"500"]
        used = os.fstat(sides.memory).st_blocks * 512
        assert used < 1024 * 1024, "what is done with is dropped"
        sides.close()

    in_loop(test)


def test_many_open_requests_are_not_copied_for_each_that_is_answered(
    in_loop: InLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = 0
    compact = Journal.compact

    def counting(journal: Journal, unfinished: int, *, uses_headers: bool, open: OpenRequests | None) -> bool:
        nonlocal copied
        copied += len(open.requests) if open is not None else 0
        return compact(journal, unfinished, uses_headers=uses_headers, open=open)

    def test(loop: asyncio.AbstractEventLoop) -> None:
        monkeypatch.setattr(Journal, "compact", counting)
        pending: dict[bytes, object] = {}
        sides = Sides(loop, sockets=False, open_requests=lambda: OpenRequests(pending, established=True))
        sides.link.start(
            lambda data: pending.update({b"%d" % json.loads(data)["id"]: data}),
            lambda: None,
            lambda piece: None,
        )
        for id in range(8000):
            os.write(sides.host_out, line("tools/call", id, text="z" * 100) + b"\n")
            sides.link._readable()
            if id >= 1000:
                answered = b"%d" % (id - 1000)
                del pending[answered]
                sides.link.answer(result(id - 1000))
                sides.hear()
        assert 0 < copied < 8000
        sides.crash()
        assert {request.id for request in sides.journal.continued().record.open} == set(pending)
        sides.close()

    in_loop(test)


def test_a_message_with_headers_continues_in_its_middle(in_loop: InLoop) -> None:
    def test(loop: asyncio.AbstractEventLoop) -> None:
        sides = Sides(loop, sockets=False)
        seen: list[bytes] = []
        sides.link.start(seen.append, lambda: None, lambda piece: None)
        whole = b"Content-Length: %d\r\n\r\n%b" % (len(CALL), CALL)
        os.write(sides.host_out, whole + whole[:40])
        sides.link._readable()
        sides.link.answer(result(4))
        sides.crash()
        continued = sides.journal.continued()
        assert continued.record.open == []
        sides.restore()
        sides.link.start(seen.append, lambda: None, lambda piece: None)
        os.write(sides.host_out, whole[40:])
        sides.link._readable()
        assert seen == [CALL, CALL]
        sides.link.answer(result(4))
        sides.hear()
        assert sides.received.count(b"Content-Length") == 2
        sides.close()

    in_loop(test)


def test_a_zero_byte_of_the_host_is_part_of_its_line(in_loop: InLoop) -> None:
    def test(loop: asyncio.AbstractEventLoop) -> None:
        sides = Sides(loop, sockets=False)
        os.write(sides.host_out, b"a\0b\n" + CALL + b"\n")
        data = sides.journal.read(sides.read_fd)
        assert data == b"a\x01b\n" + CALL + b"\n"
        sides.crash()
        assert [request.id for request in sides.journal.continued().record.open] == [b"4"]
        sides.close()

    in_loop(test)


def test_a_journal_of_another_format_is_refused() -> None:
    memory = os.memfd_create("test")
    journal = Journal(os.dup(memory))
    journal._header[journals.FORMAT] += 1
    with pytest.raises(JournalError):
        Journal(os.dup(memory))
    journal.close()
    os.close(memory)
