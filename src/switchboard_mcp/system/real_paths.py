"""`os.path.realpath` in a few system calls, on Linux."""

from __future__ import annotations

import os
import sys

# Names at the end of a path that may be absent, as for a file that is about to be written in a new folder.
MAX_ABSENT = 4
DELETED = " (deleted)"
if sys.platform == "linux":
    LOOK_UP = os.O_PATH | os.O_CLOEXEC
else:
    LOOK_UP = 0


def real_path(path: str) -> str:
    """Return what `os.path.realpath` returns for an absolute path, several times faster.

    The kernel follows the links of the part that exists. Anything unusual is left to `os.path.realpath`.
    """
    if sys.platform != "linux":
        return os.path.realpath(path)
    present, absent = path, ""
    for _ in range(MAX_ABSENT):
        try:
            opened = os.open(present, LOOK_UP)
        except FileNotFoundError:
            parent, _, name = present.rpartition("/")
            # A link whose target does not exist is followed by name.
            if not parent or name in ("", ".", "..") or os.path.islink(present):
                break
            present, absent = parent, f"/{name}{absent}"
            continue
        except (OSError, ValueError):
            break
        try:
            resolved = os.readlink(f"/proc/self/fd/{opened}")
        except OSError:
            break
        finally:
            os.close(opened)
        if not resolved.startswith("/") or resolved.endswith(DELETED):
            break
        return f"{resolved}{absent}" if resolved != "/" or not absent else absent
    return os.path.realpath(path)
