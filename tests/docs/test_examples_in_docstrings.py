"""The examples in docstrings give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

from scripts.pages import REPO

SOURCE = REPO / "src"
WITH_EXAMPLES = sorted(
    path for path in SOURCE.rglob("*.py") if "\n    >>> " in path.read_text(encoding="utf-8")
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def test_every_example_in_a_docstring_gives_what_it_shows() -> None:
    results = {name: doctest.testmod(import_module(name)) for name in map(module_name, WITH_EXAMPLES)}
    assert len(results) > 5
    assert [name for name, (failed, tried) in results.items() if failed or not tried] == []
