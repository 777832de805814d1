"""The site is whole and loads nothing from other servers, and the picture shows what the demo prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from scripts.pages import REPO
from tests.patience import PATIENCE_S


def run(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, *words]
    return subprocess.run(line, cwd=REPO, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_the_site_loads_nothing_from_other_servers(tmp_path: Path) -> None:
    built = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"))
    assert built.returncode == 0, built.stderr
    foreign = re.compile(r"<(?:script|img|link)[^>]* (?:src|href)=[\"']?(?:https?:)?//")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    assert [page for page in pages if foreign.search(page.read_text(encoding="utf-8"))] == []
    assert (tmp_path / "site" / "search" / "search_index.json").exists()


def test_the_picture_shows_what_the_demo_prints() -> None:
    done = run("scripts/picture.py", "--check")
    assert done.returncode == 0, done.stderr
