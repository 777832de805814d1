"""Hands a session over again after its broker has ended. Run by the waiting shell, which holds the host's pipes.

If there is no broker, this process continues the session itself. Both need all files of the package, which are not
there for some seconds while another version is being installed in its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from switchboard_mcp.broker.joining import BROKER, PYTHON, start_and_join
from switchboard_mcp.broker.shim import CONTROL_FD, JOURNAL_FD, NoBrokerError

AGAIN_S = 0.5


def main(arguments: Sequence[str], until: float) -> int:
    """Join a broker, or become the server of the session. Waits for a complete package until the time has come."""
    os.close(CONTROL_FD)
    while True:
        try:
            return start_and_join([*arguments], os.environ, JOURNAL_FD)
        except (NoBrokerError, ImportError, SyntaxError) as problem:
            if is_complete() or time.monotonic() > until:
                os.execv(PYTHON[0], [*PYTHON, "-m", BROKER, str(JOURNAL_FD), str(problem), *arguments])
        time.sleep(AGAIN_S)


def is_complete() -> bool:
    """Return True if the package can serve. Looked at in a process of its own, which has loaded nothing of it."""
    ran = subprocess.run(
        [*PYTHON, "-c", f"import {BROKER}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return ran.returncode == 0


if __name__ == "__main__":  # for sessions that an earlier version has handed over
    sys.exit(main(sys.argv[1:], 0.0))
