"""Two joined ends over every transport, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio
import uvloop

from switchboard_mcp.transport import memory
from switchboard_mcp.transport.base import MessageTransport
from switchboard_mcp.transport.stdio import Cork, PipeTransport

# What reads and writes descriptors itself. Sockets are those of a library, and e2e runs on uvloop.
ON_BOTH_LOOPS = {"test_links.py", "test_peers.py"}
Join = Callable[[], tuple[MessageTransport, MessageTransport]]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.SelectorEventLoop}
    if item.path.name in ON_BOTH_LOOPS:
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest_asyncio.fixture(params=["memory", "pipes"])
async def join(request: pytest.FixtureRequest) -> AsyncIterator[Join]:
    """Makes two joined ends on the running loop."""
    made: list[MessageTransport] = []

    def joined_pipes() -> tuple[MessageTransport, MessageTransport]:
        loop = asyncio.get_running_loop()
        left_read, right_write = os.pipe()
        right_read, left_write = os.pipe()
        return (
            PipeTransport(loop, left_read, left_write, Cork(), on_error=complain),
            PipeTransport(loop, right_read, right_write, Cork(), on_error=complain),
        )

    def complain(problem: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a callback failed", "exception": problem}
        )

    def make() -> tuple[MessageTransport, MessageTransport]:
        pair = memory.pair(asyncio.get_running_loop()) if request.param == "memory" else joined_pipes()
        made.extend(pair)
        return pair

    yield make
    for link in made:
        link.close()
