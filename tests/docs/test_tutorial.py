"""The tutorial as a person would type it, in one go: every command works, and prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts.pages import REPO, blocks
from tests.patience import PATIENCE_S

TUTORIAL = (REPO / "docs" / "tutorial.md").read_text(encoding="utf-8")
CONFIG = next(block for kind, block in blocks(TUTORIAL) if kind == "json")
MARK = "--- next ---"


def steps() -> list[tuple[str, list[str]]]:
    """Each command, with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for kind, block in blocks(TUTORIAL):
        for line in block.splitlines() if kind == "console" else ():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        if kind == "json":
            found.append((f"cat > switchboard.config.json <<'END'\n{CONFIG}END", []))
    return found


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    script = f"\necho '{MARK}'\n".join(["set -e", *(command for command, _ in steps())])
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path / "home"),
            "REPO": str(REPO),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    printed = [plain(part) for part in done.stdout.split(f"{MARK}\n")[1:]]
    assert len(printed) == len(steps()) > 15
    for (command, shown), seen in zip(steps(), printed, strict=True):
        for line in shown:
            assert plain(line.partition("…")[0]).strip() in seen, f"{command} does not print {line!r}: {seen}"
