"""Every test that a page names exists; requirements and threats name the tests that show them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, REPO, name_of

NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
SEEDS = REPO / "docs" / "seeds.md"


@cache
def functions_of(path: str) -> frozenset[str]:
    """Return the tests of a file by the name pytest gives them, those of classes as `Class::name`."""
    found = set[str]()
    for node in ast.parse((REPO / path).read_text(encoding="utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {
            prefix + member.name
            for member in members
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for path, name in NAMED_TEST.findall(page.read_text(encoding="utf-8")):
        assert (REPO / path).exists(), path
        assert name in functions_of(path), f"{path}::{name}"


def test_every_requirement_names_the_test_that_shows_it_or_a_page() -> None:
    requirements, _, decisions = SEEDS.read_text(encoding="utf-8").partition("## Decisions")
    numbers = set(re.findall(r"^\| (\d+) \|", decisions, re.MULTILINE))
    rows = [line for line in requirements.splitlines() if line.startswith("| ") and "---" not in line]
    shown = [row.rsplit("|", 2)[1] for row in rows if "| requirement |" not in row]
    assert len(shown) > 200
    assert [entry for entry in shown if "::" not in entry and "](" not in entry] == []
    assert set(re.findall(r"\[decision (\d+)\]", requirements)) <= numbers


def test_every_threat_of_the_security_policy_names_a_test_and_its_limits() -> None:
    text = (REPO / "SECURITY.md").read_text(encoding="utf-8")
    model = text.partition("## Threat model")[2].partition("## Scope")[0]
    rows = [
        line
        for line in model.splitlines()
        if line.startswith("| ") and not line.startswith(("| threat |", "| ---"))
    ]
    assert len(rows) > 30
    for row in rows:
        cells = [cell.strip() for cell in row.replace("\\|", "").split("|")[1:-1]]
        assert len(cells) == 4, row
        assert all(cells), row
        assert NAMED_TEST.search(cells[2]), row
