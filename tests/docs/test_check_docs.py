"""The check of the pages finds what it is for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts import check_docs
from scripts.pages import Line


def test_commands_that_do_not_exist_are_found() -> None:
    wrong = ["nosuch", "serve --nosuch", "call github search --nosuch x", "mail nosuch"]
    assert [text for text in wrong if not check_docs._problem_of(Line("page.md", text))] == []
    right = ["serve", "call github search", "init --dry-run", "help", "mail send", "--version"]
    assert [text for text in right if check_docs._problem_of(Line("page.md", text))] == []


def test_texts_that_name_no_command_are_found() -> None:
    wrong = ["switchboard nosuch", "switchboard serve.", "switchboard approve"]
    assert [text for text in wrong if not check_docs._problem_of_remedy(text)] == []
    assert not check_docs._problem_of_remedy("switchboard approve x")


def test_a_name_in_a_command_must_be_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    path = check_docs.PACKAGE / "cli" / "texts.py"
    text = "a = f'Run `switchboard login {name}`.'; b = f'Run `switchboard login {quote(name)}`. {name}'"
    monkeypatch.setattr(check_docs, "sources", lambda: {path: ast.parse(text)})
    (problem,) = check_docs.names_not_quoted_for_the_shell()
    assert problem.startswith("src/switchboard_mcp/cli/texts.py:1: name ")


def test_settings_tests_and_links_that_do_not_exist_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`mail.nosuch` `mail.keepDays` [a](nosuch.md) [b](page.md#no) [c](page.md#yes)\n\n## Yes\n\n"
        "`tests/docs/test_check_docs.py::test_no`\n"
    )
    monkeypatch.setattr(check_docs, "PAGES", [page])
    monkeypatch.setattr(check_docs, "name_of", lambda page: page.name)
    checks = (check_docs.settings_that_do_not_exist, check_docs.broken_links, check_docs.missing_tests)
    assert [problem for check in checks for problem in check()] == [
        "page.md: there is no setting mail.nosuch",
        "page.md: nothing is at nosuch.md",
        "page.md: no heading for page.md#no",
        "page.md: there is no test tests/docs/test_check_docs.py::test_no",
    ]
