"""The in-process server runs on both event loops, as the transports do."""

from tests.unit.transport.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
