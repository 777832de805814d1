from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.transport.stdio import HIGH_WATER, LOW_WATER, TURN_MESSAGES, Cork, PipeTransport, Turns
from tests.patience import PATIENCE_S
from tests.unit.transport.recorder import Recorder, settle

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


class Wire:
    """A link and the far ends of its two pipes, as a child process would hold them."""

    def __init__(self, *, mirror: bool = False, limit: int = 1 << 20, cork: Cork | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        read_fd, self.theirs_out = os.pipe()
        self.theirs_in, write_fd = os.pipe()
        os.set_blocking(self.theirs_in, False)
        self.heard = Recorder()
        self.link = PipeTransport(
            self.loop,
            read_fd,
            write_fd,
            cork or Cork(),
            mirror=mirror,
            limit=limit,
            on_congestion=self.heard.congested,
            on_broken=self.heard.broken,
            on_error=self.heard.fail,
        )

    def listen(self) -> None:
        self.heard.listen(self.link)

    def say(self, data: bytes) -> None:
        os.write(self.theirs_out, data)

    def take(self, count: int = 1 << 20) -> bytes:
        """What is in the pipe now."""
        try:
            return os.read(self.theirs_in, count)
        except BlockingIOError:
            return b""

    async def take_all(self, size: int) -> bytes:
        """Read as the other side would, until `size` bytes have come."""
        got = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            while len(got) < size:
                got += self.take()
                await asyncio.sleep(0)
        return bytes(got)

    def close(self) -> None:
        self.link.close()
        for fd in (self.theirs_in, self.theirs_out):
            try:
                os.close(fd)
            except OSError:
                pass  # the test has closed it


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


@pytest_asyncio.fixture
async def mirror() -> AsyncIterator[Wire]:
    wire = Wire(mirror=True, limit=100)
    yield wire
    wire.close()


def message(number: int, size: int = 0) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":"%b"}' % (number, b"x" * size)


class TestReading:
    async def test_messages_and_noise_are_told_apart(self, wire: Wire) -> None:
        wire.listen()
        wire.say(b"log\n" + PING + b"\n" + b"Content-Length: %d\r\n\r\n" % len(PING) + PING)
        assert await wire.heard.until_received(2) == [PING, PING]
        assert wire.heard.odd == [NonMessage(b"log")]

    async def test_a_message_beyond_the_limit_is_odd_and_the_link_lives_on(self, wire: Wire) -> None:
        wire.listen()
        big = message(1, 2 << 20) + b"\n" + PING + b"\n"
        await asyncio.gather(asyncio.to_thread(os.write, wire.theirs_out, big), wire.heard.until_received(1))
        assert wire.heard.received == [PING]
        (oversized,) = wire.heard.odd
        assert isinstance(oversized, Oversized)
        assert oversized.size == len(message(1, 2 << 20))

    async def test_a_last_message_without_newline_comes_before_the_end(self, wire: Wire) -> None:
        wire.listen()
        wire.say(PING)
        os.close(wire.theirs_out)
        await wire.heard.until_closed()
        assert wire.heard.received == [PING]
        assert wire.heard.ends == 1

    async def test_a_message_cut_short_by_the_end_is_delivered_as_such(self, wire: Wire) -> None:
        ended: list[bool] = []
        wire.link.start(lambda _each: ended.append(wire.link.ended), wire.heard.closed, wire.heard.hear_odd)
        wire.say(PING + b"\n" + PING[:-5])
        os.close(wire.theirs_out)
        await wire.heard.until_closed()
        assert ended == [False, True]

    async def test_whether_anybody_still_writes_can_be_seen_without_reading(self, wire: Wire) -> None:
        seen = [wire.link.source_ended]
        wire.say(PING + b"\n")
        seen.append(wire.link.source_ended)
        os.close(wire.theirs_out)
        seen.append(wire.link.source_ended)
        assert seen == [False, False, True]
        wire.listen()
        await wire.heard.until_closed()
        assert wire.heard.received == [PING]
        assert wire.link.source_ended

    async def test_a_regular_file_as_input_is_read_to_its_end(self, wire: Wire, tmp_path: Path) -> None:
        lines = [message(number, 500) for number in range(1000)]
        file = tmp_path / "requests.jsonl"
        file.write_bytes(b"\n".join(lines))
        link = PipeTransport(
            wire.loop, os.open(file, os.O_RDONLY), os.dup(wire.theirs_out), Cork(), on_error=wire.heard.fail
        )
        wire.heard.listen(link)
        await wire.heard.until_closed()
        assert wire.heard.received == lines
        link.close()

    async def test_a_regular_file_can_be_paused(self, wire: Wire, tmp_path: Path) -> None:
        lines = [message(number, 500) for number in range(1000)]
        file = tmp_path / "requests.jsonl"
        file.write_bytes(b"\n".join(lines))
        link = PipeTransport(
            wire.loop, os.open(file, os.O_RDONLY), os.dup(wire.theirs_out), Cork(), on_error=wire.heard.fail
        )
        wire.heard.listen(link)
        await wire.heard.until_received(1)
        link.pause()
        count = len(wire.heard.received)
        await settle()
        assert len(wire.heard.received) == count < len(lines)
        link.resume()
        await wire.heard.until_closed()
        assert wire.heard.received == lines
        link.close()

    async def test_dev_null_as_input_is_an_end_at_once(self, wire: Wire) -> None:
        link = PipeTransport(
            wire.loop,
            os.open(os.devnull, os.O_RDONLY),
            os.dup(wire.theirs_out),
            Cork(),
            on_error=wire.heard.fail,
        )
        wire.heard.listen(link)
        await wire.heard.until_closed()
        assert wire.heard.received == []
        link.close()

    async def test_a_terminal_that_goes_away_is_an_end(self, wire: Wire) -> None:
        main, terminal = pty.openpty()
        link = PipeTransport(wire.loop, terminal, os.dup(wire.theirs_out), Cork(), on_error=wire.heard.fail)
        wire.heard.listen(link)
        os.write(main, PING + b"\n")
        await wire.heard.until_received(1)
        os.close(main)
        await wire.heard.until_closed()
        assert wire.heard.received == [PING]
        link.close()

    async def test_a_socket_that_is_reset_is_an_end(self, wire: Wire) -> None:
        ours, theirs = socket.socketpair()
        link = PipeTransport(
            wire.loop, ours.detach(), os.dup(wire.theirs_out), Cork(), on_error=wire.heard.fail
        )
        wire.heard.listen(link)
        os.write(theirs.fileno(), PING + b"\n")
        await wire.heard.until_received(1)
        theirs.close()
        await wire.heard.until_closed()
        link.close()


class TestWriting:
    async def test_a_message_goes_out_at_once_with_a_newline(self, wire: Wire) -> None:
        wire.link.send(PING)
        assert wire.take() == PING + b"\n"
        assert wire.link.write_buffer_size == 0

    async def test_an_answer_goes_out_in_the_framing_the_other_side_used(self, mirror: Wire) -> None:
        mirror.listen()
        framed = b"Content-Length: %d\r\n\r\n" % len(PING) + PING
        for output, expected in ((framed, framed), (PING + b"\n", PING + b"\n"), (framed, framed)):
            before = len(mirror.heard.received)
            mirror.say(output)
            await mirror.heard.until_received(before + 1)
            mirror.link.send(PING)
            assert mirror.take() == expected

    async def test_an_answer_to_what_was_too_large_is_framed_too(self, mirror: Wire) -> None:
        mirror.listen()
        mirror.say(b"Content-Length: 200\r\n\r\n" + b"x" * 200)
        await mirror.heard.until(lambda: bool(mirror.heard.odd))
        mirror.link.send(PING)
        assert mirror.take().startswith(b"Content-Length: ")

    async def test_to_a_child_newlines_are_sent_whatever_it_sends(self, wire: Wire) -> None:
        wire.listen()
        wire.say(b"Content-Length: %d\r\n\r\n" % len(PING) + PING)
        await wire.heard.until_received(1)
        wire.link.send(PING)
        assert wire.take() == PING + b"\n"

    async def test_output_may_go_to_a_regular_file(self, wire: Wire, tmp_path: Path) -> None:
        file = tmp_path / "answers.jsonl"
        link = PipeTransport(
            wire.loop,
            os.dup(wire.theirs_in),
            os.open(file, os.O_WRONLY | os.O_CREAT),
            Cork(),
            on_error=wire.heard.fail,
        )
        for number in range(3):
            link.send(message(number, 1 << 20))
        link.close()
        assert file.read_bytes() == b"".join(message(number, 1 << 20) + b"\n" for number in range(3))

    async def test_a_reader_that_is_gone_ends_sending_and_nothing_else(self, wire: Wire) -> None:
        wire.listen()
        os.close(wire.theirs_in)
        assert wire.link.other_side_gone
        wire.link.send(PING)
        wire.link.send(PING)
        assert wire.link.write_buffer_size == 0
        assert wire.link.other_side_gone
        wire.say(PING + b"\n")
        assert await wire.heard.until_received(1) == [PING]
        assert wire.heard.ends == 0
        assert wire.heard.errors == []
        assert wire.heard.breaks == 1

    async def test_somebody_who_still_reads_is_not_gone(self, wire: Wire) -> None:
        assert not wire.link.other_side_gone
        wire.link.send(message(1, 1 << 20))
        assert not wire.link.other_side_gone

    async def test_sending_ends_only_after_the_queue_is_empty(self, wire: Wire) -> None:
        sent = [message(number, 100_000) for number in range(5)]
        for each in sent:
            wire.link.send(each)
        wire.link.close_sending()
        assert not wire.link.other_side_gone
        expected = b"".join(each + b"\n" for each in sent)
        assert await wire.take_all(len(expected)) == expected
        await settle()
        assert os.read(wire.theirs_in, 1) == b""

    async def test_sending_ends_at_once_with_an_empty_queue(self, wire: Wire) -> None:
        wire.link.close_sending()
        assert os.read(wire.theirs_in, 1) == b""

    async def test_a_message_sent_while_others_are_read_is_not_cut_off_by_the_end_of_sending(
        self, wire: Wire
    ) -> None:
        def receive(_each: bytes) -> None:
            wire.link.send(PING)
            wire.link.close_sending()

        wire.link.start(receive, wire.heard.closed, wire.heard.hear_odd)
        wire.say(PING + b"\n")
        assert await wire.take_all(len(PING) + 1) == PING + b"\n"
        assert os.read(wire.theirs_in, 1) == b""

    async def test_closing_drops_what_is_queued_and_both_descriptors(self, wire: Wire) -> None:
        wire.listen()
        wire.link.send(message(1, 1 << 20))
        wire.link.close()
        assert wire.link.write_buffer_size == 0
        with pytest.raises(BrokenPipeError):
            wire.say(PING)
        got = b""
        while part := os.read(wire.theirs_in, 1 << 20):
            got += part
        assert len(got) < 1 << 20


class TestBackpressure:
    async def test_a_reader_that_stops_is_told_of_once_and_once_more_when_it_reads_again(
        self, wire: Wire
    ) -> None:
        sent: list[bytes] = []
        while wire.link.write_buffer_size <= 2 * HIGH_WATER:
            sent.append(message(len(sent), 100_000))
            wire.link.send(sent[-1])
        assert wire.heard.congestion == [True]
        expected = b"".join(each + b"\n" for each in sent)
        got = await wire.take_all(len(expected) - LOW_WATER)
        got += await wire.take_all(len(expected) - len(got))
        assert got == expected
        assert wire.heard.congestion == [True, False]
        assert wire.link.write_buffer_size == 0

    async def test_it_is_told_of_where_the_queue_grows_while_reading(self, wire: Wire) -> None:
        wire.link.start(
            lambda _each: wire.link.send(message(2, 1 << 20)), wire.heard.closed, wire.heard.hear_odd
        )
        for _ in range(6):
            wire.say(PING + b"\n")
        await wire.heard.until(lambda: bool(wire.heard.congestion))
        assert wire.heard.congestion == [True]
        assert wire.link.write_buffer_size > HIGH_WATER

    async def test_it_begins_again_after_it_was_over(self, wire: Wire) -> None:
        for _ in range(2):
            total = 0
            while wire.link.write_buffer_size <= HIGH_WATER:
                wire.link.send(message(1, 1 << 20))
                total += len(message(1, 1 << 20)) + 1
            await wire.take_all(total)
        assert wire.heard.congestion == [True, False, True, False]

    async def test_a_reader_that_dies_holds_nobody_up(self, wire: Wire) -> None:
        while wire.link.write_buffer_size <= HIGH_WATER:
            wire.link.send(message(1, 1 << 20))
        assert wire.heard.congestion == [True]
        os.close(wire.theirs_in)
        await wire.heard.until(lambda: len(wire.heard.congestion) > 1)
        assert wire.heard.congestion == [True, False]
        assert wire.link.write_buffer_size == 0
        await settle()
        assert wire.heard.breaks == 1

    async def test_a_link_that_is_closed_holds_nobody_up(self, wire: Wire) -> None:
        while wire.link.write_buffer_size <= HIGH_WATER:
            wire.link.send(message(1, 1 << 20))
        wire.link.close()
        assert wire.heard.congestion == [True, False]
        await settle()
        assert wire.heard.breaks == 0

    async def test_little_queued_messages_are_counted_and_all_arrive(self, wire: Wire) -> None:
        sent = [message(number, 3) for number in range(20_000)]
        for each in sent:
            wire.link.send(each)
        assert (
            sum(map(len, sent)) - (1 << 20)
            <= wire.link.write_buffer_size
            <= sum(len(each) + 1 for each in sent)
        )
        expected = b"".join(each + b"\n" for each in sent)
        assert await wire.take_all(len(expected)) == expected
        assert wire.link.write_buffer_size == 0

    async def test_written_data_is_not_kept(self, wire: Wire) -> None:
        wire.link.send(message(1, 1 << 20))
        await wire.take_all(len(message(1, 1 << 20)) + 1)
        await settle()
        assert wire.link._unsent is None
        assert wire.link._out == []


class TestCork:
    async def test_answers_to_all_messages_of_one_read_go_out_in_one_write(self) -> None:
        wire = Wire()
        # A packet pipe keeps the borders between writes: one read gives one write.
        theirs_in, ours = os.pipe2(os.O_DIRECT)
        os.set_blocking(theirs_in, False)
        read_fd, theirs_out = os.pipe()
        link = PipeTransport(wire.loop, read_fd, ours, Cork(), on_error=wire.heard.fail)

        def answer(each: bytes) -> None:
            wire.heard.receive(each)
            link.send(each)

        link.start(answer, wire.heard.closed, wire.heard.hear_odd)
        sent = [message(number) for number in range(20)]
        os.write(theirs_out, b"".join(each + b"\n" for each in sent))
        await wire.heard.until_received(20)
        assert os.read(theirs_in, 65_536) == b"".join(each + b"\n" for each in sent)
        link.close()
        assert os.read(theirs_in, 65_536) == b""
        os.close(theirs_in)
        os.close(theirs_out)
        wire.close()

    async def test_output_to_another_link_with_the_same_cork_waits_too(self) -> None:
        cork = Cork()
        host, child = Wire(cork=cork), Wire(cork=cork)
        in_between: list[bytes] = []

        def forward(each: bytes) -> None:
            child.link.send(each)
            in_between.append(child.take())
            host.heard.receive(each)

        host.link.start(forward, host.heard.closed, host.heard.hear_odd)
        host.say((PING + b"\n") * 3)
        await host.heard.until_received(3)
        assert in_between == [b"", b"", b""]
        assert child.take() == (PING + b"\n") * 3
        host.close()
        child.close()

    async def test_a_receiver_that_fails_does_not_keep_the_cork_in(self, wire: Wire) -> None:
        def receive(each: bytes) -> None:
            wire.heard.receive(each)
            wire.link.send(each)
            raise ValueError("a surprise")

        wire.link.start(receive, wire.heard.closed, wire.heard.hear_odd)
        wire.say((PING + b"\n") * 2)
        await wire.heard.until_received(2)
        assert len(wire.heard.errors) == 2
        assert wire.take() == (PING + b"\n") * 2
        wire.link.send(PING)
        assert wire.take() == PING + b"\n"

    async def test_even_a_reporter_that_fails_does_not_keep_the_cork_in(self) -> None:
        wire = Wire()
        wire.loop.set_exception_handler(lambda _loop, context: wire.heard.fail(context["exception"]))

        def fail(*_anything: object) -> None:
            raise ValueError("a surprise")

        read_fd, theirs_out = os.pipe()
        link = PipeTransport(wire.loop, read_fd, os.dup(wire.theirs_out), wire.link._cork, on_error=fail)
        link.start(fail, wire.heard.closed, wire.heard.hear_odd)
        os.write(theirs_out, PING + b"\n")
        await wire.heard.until(lambda: bool(wire.heard.errors))
        wire.link.send(PING)
        assert wire.take() == PING + b"\n"
        link.close()
        os.close(theirs_out)
        wire.close()

    async def test_a_link_closed_while_its_output_was_held_back_stays_closed(self, wire: Wire) -> None:
        def receive(each: bytes) -> None:
            wire.link.send(each)
            wire.link.close()
            wire.heard.receive(each)

        wire.link.start(receive, wire.heard.closed, wire.heard.hear_odd)
        wire.say(PING + b"\n")
        await wire.heard.until_received(1)
        await settle()
        assert os.read(wire.theirs_in, 10) == b""
        assert wire.heard.errors == []


class TestTurns:
    @pytest_asyncio.fixture
    async def hosts(self) -> AsyncIterator[list[Wire]]:
        cork = Cork(Turns())
        hosts = [Wire(mirror=True, cork=cork) for _ in range(3)]
        yield hosts
        for each in hosts:
            each.close()

    def listen(self, hosts: list[Wire], log: list[tuple[int, bytes]]) -> None:
        for number, each in enumerate(hosts):

            def receive(data: bytes, number: int = number) -> None:
                log.append((number, data))
                hosts[number].heard.receive(data)

            each.link.start(receive, each.heard.closed, each.heard.hear_odd)

    async def test_little_input_is_handled_between_the_messages_of_a_busy_host(
        self, hosts: list[Wire]
    ) -> None:
        log: list[tuple[int, bytes]] = []
        self.listen(hosts, log)
        busy, quiet, idle = hosts
        for _ in range(5):  # the event loop has seen all of this input before any is handled
            for number in range(200):
                busy.say(message(number) + b"\n")
            quiet.say(PING + b"\n")
            await busy.heard.until_received(200)
            await quiet.heard.until_received(1)
            assert log.index((1, PING)) <= TURN_MESSAGES
            assert [data for number, data in log if number == 0] == [message(number) for number in range(200)]
            assert not idle.heard.received
            for each in hosts:
                each.heard.received.clear()
            log.clear()

    async def test_a_host_alone_is_not_interrupted(self) -> None:
        turns = Turns()
        host, child = Wire(mirror=True, cork=Cork(turns)), Wire(cork=Cork(turns))
        log: list[tuple[int, bytes]] = []
        self.listen([host, child], log)
        host.say((PING + b"\n") * 100)
        child.say(PING + b"\n")
        await host.heard.until_received(100)
        await child.heard.until_received(1)
        assert log.index((1, PING)) in (0, 100)
        host.close()
        child.close()

    async def test_hosts_take_turns_only_while_there_are_several(self, hosts: list[Wire]) -> None:
        turns = hosts[0].link._cork.turns
        assert turns is not None
        log: list[tuple[int, bytes]] = []
        busy, first, second = hosts
        self.listen([busy], log)
        busy.say(PING + b"\n")
        assert turns._input.poll(0) == [], (
            "a second set of descriptors would cost every message of a host alone"
        )
        for other in (first, second):
            self.listen([busy, other], log)
            for number in range(100):
                busy.say(message(number) + b"\n")
            other.say(PING + b"\n")
            await other.heard.until_received(1)
            assert log.index((1, PING)) <= TURN_MESSAGES + 1
            await settle()
            other.link.close()
            busy.say(PING + b"\n")
            assert turns._input.poll(0) == []
            await settle()
            log.clear()

    async def test_a_host_that_ends_or_is_closed_in_its_turn_disturbs_nobody(self, hosts: list[Wire]) -> None:
        log: list[tuple[int, bytes]] = []
        self.listen(hosts, log)
        busy, ending, closing = hosts
        closing.link._on_message = lambda _data: closing.link.close()
        busy.say((PING + b"\n") * 100)
        ending.say(PING + b"\n")
        os.close(ending.theirs_out)
        closing.say((PING + b"\n") * 100)
        await ending.heard.until_closed()
        await busy.heard.until_received(100)
        await settle()
        assert len(ending.heard.received) == 1
        assert not any(each.heard.errors for each in hosts)
        busy.say((PING + b"\n") * 100)
        await busy.heard.until_received(200)

    async def test_a_busy_host_that_is_resumed_in_between_keeps_its_order(self, hosts: list[Wire]) -> None:
        log: list[tuple[int, bytes]] = []
        self.listen(hosts, log)
        busy, quiet, _ = hosts

        def resume(data: bytes) -> None:
            busy.link.pause()
            busy.link.resume()
            busy.say(message(100) + b"\n")
            log.append((1, data))

        quiet.link._on_message = resume
        for number in range(100):
            busy.say(message(number) + b"\n")
        quiet.say(PING + b"\n")
        await busy.heard.until_received(101)
        assert busy.heard.received == [message(number) for number in range(101)]
        assert log.index((1, PING)) <= TURN_MESSAGES

    async def test_output_is_not_settled_while_messages_wait_to_be_delivered(
        self, hosts: list[Wire], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: list[tuple[int, bytes]] = []
        self.listen(hosts, log)
        busy, quiet, _ = hosts
        settled: list[bool] = []

        def write(_fd: int, data: bytes | memoryview) -> int:
            settled.append(busy.link.is_settled)
            return len(data)

        monkeypatch.setattr(busy.link, "_write", write)
        quiet.link._on_message = busy.link.send
        busy.say((PING + b"\n") * 100)
        quiet.say(PING + b"\n")
        await busy.heard.until_received(100)
        assert settled == [False]
        busy.link.send(PING)
        assert settled == [False, True]


async def test_a_pipe_we_write_to_does_not_block_and_one_we_read_from_is_left_as_it_is(wire: Wire) -> None:
    assert not os.get_blocking(wire.link._write_fd)
    assert fcntl.fcntl(wire.link._read_fd, fcntl.F_GETFL) & os.O_NONBLOCK == 0


async def test_the_end_of_a_socket_is_seen_although_its_other_side_has_left_data_unread() -> None:
    ours, theirs = socket.socketpair()
    heard = Recorder()
    read_fd = ours.detach()
    link = PipeTransport(asyncio.get_running_loop(), read_fd, os.dup(read_fd), Cork(), on_error=heard.fail)
    link.send(PING)
    theirs.sendall((PING + b"\n") * 3000)  # more than is read at once
    theirs.close()
    heard.listen(link)
    await heard.until_closed()
    assert len(heard.received) == 3000
    link.close()
