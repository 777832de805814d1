from __future__ import annotations

from typing import cast

from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.flow_control import FlowControl


class Tap:
    def __init__(self) -> None:
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


def test_all_links_are_held_back_and_let_go_together() -> None:
    valve, taps = FlowControl(), [Tap(), Tap()]
    for tap in taps:
        valve.add(cast(MessageTransport, tap))
    assert [tap.paused for tap in taps] == [False, False]
    valve.pause_all()
    assert [tap.paused for tap in taps] == [True, True]
    valve.resume_all()
    assert [tap.paused for tap in taps] == [False, False]


def test_a_link_that_joins_while_it_is_shut_is_held_back_too() -> None:
    valve, tap = FlowControl(), Tap()
    valve.pause_all()
    valve.add(cast(MessageTransport, tap))
    assert tap.paused
    valve.resume_all()
    assert not tap.paused


def test_a_link_that_has_left_is_left_alone() -> None:
    valve, tap = FlowControl(), Tap()
    valve.add(cast(MessageTransport, tap))
    valve.discard(cast(MessageTransport, tap))
    valve.discard(cast(MessageTransport, tap))
    valve.pause_all()
    assert not tap.paused
