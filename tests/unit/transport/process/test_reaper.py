"""The family of processes, as systems without /proc tell it."""

from __future__ import annotations

import os
import subprocess
import sys

from switchboard_mcp.transport.process import reaper

SLEEPER = """
import subprocess, sys
program = subprocess.Popen(["sleep", "60"])
print(program.pid, flush=True)
sys.stdin.read()
program.kill()
program.wait()
"""


def test_ps_knows_the_same_descendants_as_proc() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        for family in (reaper.children_by_parent(), reaper.children_by_ps()):
            assert reaper.descendants_of([parent.pid], family) == [grandchild]
            assert parent.pid in family[os.getpid()]
        parent.communicate()
