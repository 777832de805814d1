from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.gateway.board import Board, open_board


@pytest.fixture
def board() -> Iterator[Board]:
    """A gateway without children, yet. What goes wrong inside it fails the test."""
    with open_board() as board:
        yield board
