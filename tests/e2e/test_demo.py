"""`make demo`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.shell import answered
from tests.patience import PATIENCE_S


def test_the_demo_works_and_says_what_is_saved(repo: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(repo / "examples" / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    out = answered(done)
    assert "44 tools" in out
    assert "4 suites" in out
    assert "% less" in out
    assert "\x1b[" not in out


def test_a_demo_that_fails_says_so_with_its_exit_code(repo: Path, tmp_path: Path) -> None:
    copy = tmp_path / "examples"
    (copy / "demo").mkdir(parents=True)
    (copy / "demo.py").write_bytes((repo / "examples" / "demo.py").read_bytes())
    (copy / "demo" / "switchboard.config.json").write_text('{"mcpServers":{"x":{"args":["nothing.py"]}}}')
    done = subprocess.run(
        [sys.executable, str(copy / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "The demo failed: nothing.py" in done.stderr
