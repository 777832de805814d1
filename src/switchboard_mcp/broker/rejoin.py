"""Hands a session over again after its broker has ended. Run by the waiting shell, which holds the host's pipes.

If there is no broker, this process continues the session itself.
"""

from __future__ import annotations

import os
import sys

from switchboard_mcp.broker.joining import BROKER, PYTHON, start_and_join
from switchboard_mcp.broker.shim import CONTROL_FD, JOURNAL_FD, NoBrokerError


def main() -> int:
    """Join a broker, or become the server of the session."""
    os.close(CONTROL_FD)
    arguments = sys.argv[1:]
    try:
        return start_and_join(arguments, os.environ, JOURNAL_FD)
    except NoBrokerError as problem:
        os.execv(PYTHON[0], [*PYTHON, "-m", BROKER, str(JOURNAL_FD), str(problem), *arguments])


if __name__ == "__main__":
    sys.exit(main())
