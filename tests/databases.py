"""Types of the fixtures for databases."""

from __future__ import annotations

from collections.abc import Callable

Targets = Callable[[], str]
