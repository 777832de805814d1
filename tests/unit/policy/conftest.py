"""Fixtures of the tests of policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.policy.launch.launching import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A governed workspace with one approved child."""
    return Place(tmp_path)
