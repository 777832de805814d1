"""The examples in docstrings give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import REPO

SOURCE = REPO / "src"
WITH_EXAMPLES = sorted(
    path for path in SOURCE.rglob("*.py") if "\n    >>> " in path.read_text(encoding="utf-8")
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=module_name)
def test_every_example_in_a_docstring_gives_what_it_shows(path: Path) -> None:
    failed, tried = doctest.testmod(import_module(module_name(path)))
    assert tried
    assert not failed


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) > 5
