"""Every link inside the repository leads somewhere, the site is whole, and the picture shows the demo as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, REPO, headings, links, name_of
from tests.patience import PATIENCE_S


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        aim = page.parent / path if path else page
        assert aim.exists(), link
        if anchor and aim.suffix == ".md":
            assert anchor in headings(aim), link


def test_the_map_of_the_code_names_modules_that_exist() -> None:
    named = re.findall(r"`([a-z]+(?:/\w+)*\.py)`", (REPO / "docs" / "code.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    places = (REPO / "src" / "switchboard_mcp", REPO)
    assert [path for path in named if not any((place / path).exists() for place in places)] == []


def script(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, f"scripts/{words[0]}", *words[1:]]
    return subprocess.run(line, cwd=REPO, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def site(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *words]
    return subprocess.run(line, cwd=REPO, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_other_servers(tmp_path: Path) -> None:
    built = site(tmp_path / "site")
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|img|link)[^>]* (?:src|href)=[\"']?(?:https?:)?//", text), page
    assert (tmp_path / "site" / "search" / "search_index.json").exists()


def test_a_broken_link_fails_the_site(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(REPO / "docs", docs)
    (docs / "index.md").write_text("# Switchboard\n\n[nowhere](nowhere.md)\n")
    config = (REPO / "mkdocs.yml").read_text().replace("docs_dir: docs", f"docs_dir: {docs}")
    (tmp_path / "mkdocs.yml").write_text(
        config.replace("scripts/site_hooks.py", str(REPO / "scripts/site_hooks.py"))
    )
    built = site(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert built.returncode != 0
    assert "nowhere.md" in built.stderr


def test_the_picture_shows_what_the_demo_prints() -> None:
    told = script("picture.py", "--check")
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_description_of_the_picture_has_its_figures(page: str) -> None:
    picture = (REPO / "docs/picture.svg").read_text(encoding="utf-8")
    (before,) = re.findall(r"44 tools +([\d,]+) tokens", picture)
    (after,) = re.findall(r"4 suites +([\d,]+) tokens", picture)
    text = (REPO / page).read_text(encoding="utf-8")
    assert f"44 tools with {before} tokens become 4 suites with {after}" in text


def test_every_decision_has_a_number_of_its_own() -> None:
    pages = sorted((REPO / "docs" / "adr").glob("[0-9]*.md"))
    numbers = [int(page.name.partition("-")[0]) for page in pages]
    titles = [page.read_text(encoding="utf-8").partition(".")[0] for page in pages]
    assert titles == [f"# {number}" for number in numbers]
    assert len(set(numbers)) == len(numbers) > 10


def test_every_page_that_the_code_speaks_of_exists() -> None:
    named = {
        (source, page)
        for source in (REPO / "src").rglob("*.py")
        for page in re.findall(r"docs/[\w/-]+\.md", source.read_text(encoding="utf-8"))
        if page != "docs/plan.md"  # a file of the reader's, in an example
    }
    assert named
    assert [(name_of(source), page) for source, page in sorted(named) if not (REPO / page).exists()] == []
