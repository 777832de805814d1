"""What every link promises, over every transport."""

from __future__ import annotations

import asyncio

from tests.interaction.conftest import Join
from tests.unit.transport.recorder import Recorder, settle


def message(number: int, size: int = 0) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":"%b"}' % (number, b"x" * size)


MANY = [message(number) for number in range(3000)]


async def test_messages_arrive_whole_and_in_order_both_ways(join: Join) -> None:
    left, right = join()
    at_left, at_right = Recorder(), Recorder()
    at_left.listen(left)
    at_right.listen(right)
    for each in MANY:
        left.send(each)
        right.send(each)
    assert await at_right.until_received(len(MANY)) == MANY
    assert await at_left.until_received(len(MANY)) == MANY


async def test_a_large_message_arrives_whole_between_small_ones(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    heard.listen(right)
    sent = [message(1), message(2, 5 << 20), message(3), message(4, 1 << 20), message(5)]
    for each in sent:
        left.send(each)
    assert await heard.until_received(len(sent)) == sent
    assert left.write_buffer_size == 0


async def test_what_was_sent_before_the_other_end_listens_is_not_lost(join: Join) -> None:
    left, right = join()
    left.send(message(1))
    await settle()
    heard = Recorder()
    heard.listen(right)
    left.send(message(2))
    assert await heard.until_received(2) == [message(1), message(2)]


async def test_nothing_is_delivered_from_within_send(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    heard.listen(right)
    left.send(message(1))
    assert heard.received == []
    await heard.until_received(1)


async def test_an_answer_sent_while_receiving_arrives(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    heard.listen(left)
    right.start(right.send, lambda: None, lambda piece: None)
    for each in MANY[:100]:
        left.send(each)
    assert await heard.until_received(100) == MANY[:100]


async def test_a_paused_end_delivers_nothing_until_it_is_resumed(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    heard.listen(right)
    left.send(message(1))
    await heard.until_received(1)
    right.pause()
    right.pause()
    left.send(message(2))
    left.close_sending()
    await settle()
    assert heard.received == [message(1)]
    assert heard.ends == 0
    right.resume()
    right.resume()
    await heard.until_closed()
    assert heard.received == [message(1), message(2)]
    assert heard.ends == 1


async def test_an_end_paused_before_it_listens_stays_paused(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    right.pause()
    heard.listen(right)
    left.send(message(1))
    await settle()
    assert heard.received == []
    right.resume()
    assert await heard.until_received(1) == [message(1)]


async def test_an_end_paused_while_it_delivers_comes_back_for_the_rest(join: Join) -> None:
    left, right = join()
    heard = Recorder()

    def receive(each: bytes) -> None:
        if not heard.received:
            right.pause()
        heard.receive(each)

    right.start(receive, heard.closed, heard.hear_odd)
    left.send(message(1))
    left.send(message(2))
    left.close_sending()
    await heard.until_received(1)
    await settle()
    assert heard.ends == 0
    right.resume()
    await heard.until_closed()
    assert heard.received == [message(1), message(2)]


async def test_the_end_of_sending_is_told_once_after_the_last_message(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    ends_before: list[tuple[int, bool]] = []

    def receive(each: bytes) -> None:
        heard.receive(each)
        ends_before.append((heard.ends, right.ended))

    right.start(receive, heard.closed, heard.hear_odd)
    for each in MANY:
        left.send(each)
    left.close_sending()
    left.close_sending()
    await heard.until_closed()
    await settle()
    assert heard.received == MANY
    assert set(ends_before) == {(0, False)}
    assert heard.ends == 1
    assert right.ended
    assert not left.ended


async def test_after_the_end_of_sending_the_other_direction_still_works(join: Join) -> None:
    left, right = join()
    at_left, at_right = Recorder(), Recorder()
    at_left.listen(left)
    at_right.listen(right)
    left.close_sending()
    await at_right.until_closed()
    right.send(message(1))
    assert await at_left.until_received(1) == [message(1)]
    assert at_left.ends == 0


async def test_nothing_is_sent_after_the_end_of_sending(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    heard.listen(right)
    left.close_sending()
    left.send(message(1))
    await heard.until_closed()
    await settle()
    assert heard.received == []
    assert left.write_buffer_size == 0


async def test_a_closed_end_is_silent_and_the_other_end_hears_of_it(join: Join) -> None:
    left, right = join()
    at_left, at_right = Recorder(), Recorder()
    at_left.listen(left)
    at_right.listen(right)
    right.send(message(1))
    left.close()
    left.close()
    left.send(message(2))
    left.resume()
    await at_right.until_closed()
    right.send(message(3))
    await settle()
    assert at_left.received == []
    assert at_left.ends == 0
    assert at_right.received == []
    assert at_right.ends == 1
    assert left.write_buffer_size == 0


async def test_an_end_closed_while_it_delivers_delivers_no_more(join: Join) -> None:
    left, right = join()
    heard = Recorder()

    def receive(each: bytes) -> None:
        heard.receive(each)
        right.close()

    right.start(receive, heard.closed, heard.hear_odd)
    left.send(message(1))
    left.send(message(2))
    left.close_sending()
    await heard.until_received(1)
    await settle()
    assert heard.received == [message(1)]
    assert heard.ends == 0


async def test_a_message_that_fails_in_its_receiver_does_not_take_the_others_with_it(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.fail(context["exception"]))

    def receive(each: bytes) -> None:
        heard.receive(each)
        if each == message(2):
            raise ValueError("a surprise")

    right.start(receive, heard.closed, heard.hear_odd)
    for number in (1, 2, 3):
        left.send(message(number))
    left.close_sending()
    await heard.until_closed()
    assert heard.received == [message(1), message(2), message(3)]
    assert [str(problem) for problem in heard.errors] == ["a surprise"]


async def test_what_the_other_side_has_not_taken_counts_as_backlog(join: Join) -> None:
    left, right = join()
    heard = Recorder()
    assert left.write_buffer_size == 0
    left.send(message(1, 1 << 20))
    assert left.write_buffer_size > 500_000
    before = left.write_buffer_size
    left.send(message(2))
    assert left.write_buffer_size > before
    heard.listen(right)
    await heard.until_received(2)
    assert left.write_buffer_size == 0
