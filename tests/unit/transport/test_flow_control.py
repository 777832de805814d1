from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.flow_control import FlowControl


class Link:
    def __init__(self) -> None:
        self.paused = False
        self.resumed = asyncio.Event()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.resumed.set()


def link() -> tuple[Link, MessageTransport]:
    made = Link()
    return made, cast(MessageTransport, made)


def test_children_are_paused_while_no_host_reads_and_a_host_that_does_not_is_not_read() -> None:
    flow = FlowControl()
    (child, child_link), (host, host_link), (other, other_link) = link(), link(), link()
    flow.add(child_link)
    flow.add_host(host_link)
    flow.add_host(other_link)
    seen = []
    steps: list[Callable[[], None]] = [
        partial(flow.congested, host_link, True),
        partial(flow.congested, other_link, True),
        partial(flow.congested, host_link, False),
        partial(flow.congested, host_link, True),
        partial(flow.discard_host, other_link),
        partial(flow.add_host, other_link),
        partial(flow.discard_host, other_link),
        partial(flow.discard_host, host_link),
    ]
    for step in steps:
        step()
        seen.append((host.paused, other.paused, child.paused))
    assert seen == [
        (True, False, False),
        (True, True, True),
        (False, True, False),
        (True, True, True),
        (True, True, True),
        (True, True, False),
        (True, True, True),
        (True, True, False),
    ]


def test_a_child_that_joins_while_no_host_reads_is_paused_and_one_that_has_left_is_not() -> None:
    flow = FlowControl()
    (joined, joined_link), (left, left_link), (_, host_link) = link(), link(), link()
    flow.add_host(host_link)
    flow.add(left_link)
    flow.discard(left_link)
    flow.congested(host_link, True)
    flow.add(joined_link)
    assert (joined.paused, left.paused) == (True, False)
    flow.congested(host_link, False)
    assert not joined.paused


async def test_a_child_that_floods_pauses_for_a_moment_unless_no_host_reads_then() -> None:
    flow, loop = FlowControl(), asyncio.get_running_loop()
    (child, child_link), (_, host_link) = link(), link()
    flow.add_host(host_link)
    flow.add(child_link)
    flow.slow_down(child_link, loop, 0)
    flow.slow_down(child_link, loop, 0)
    assert child.paused
    await child.resumed.wait()
    flow.slow_down(child_link, loop, 0)
    flow.congested(host_link, True)
    for _ in range(5):
        await asyncio.sleep(0)
    assert child.paused
    flow.congested(host_link, False)
    assert not child.paused
