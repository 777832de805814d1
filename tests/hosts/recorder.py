"""Runs a command in front of which a host sits, and writes down each line before it passes it on.

    recorder.py FILE COMMAND…

FILE gets one line per message: who said it, and the message. So whatever one side has acted on is in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO


def main() -> int:
    record = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    # A host may go without closing its end, so nobody waits for this one.
    forth = (sys.stdin.buffer, process.stdin, record, "host")
    threading.Thread(target=pass_on, args=forth, daemon=True).start()
    pass_on(process.stdout, sys.stdout.buffer, record, "switchboard")
    return process.wait()


def pass_on(source: IO[bytes], target: IO[bytes], record: int, who: str) -> None:
    try:
        for line in source:
            os.write(record, b'{"from":"%s","message":%s}\n' % (who.encode(), line.strip()))
            target.write(line)
            target.flush()
        target.close()
    except OSError:
        pass  # the other side is gone


if __name__ == "__main__":
    # The reader of stdin may still wait, and Python would stumble over it at its end.
    os._exit(main())
