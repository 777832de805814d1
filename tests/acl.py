"""POSIX ACLs for tests, written as `setfacl` would write them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from switchboard_mcp.system.write_access import ACCESS_ACL, DEFAULT_ACL

USER, GROUP, MASK = 0x02, 0x08, 0x10
STRANGER = 54_321
_NOBODY = 0xFFFFFFFF


def acl(*entries: tuple[int, int, int], group: int = 4, mask: int = 7, other: int = 4) -> bytes:
    """An ACL with more entries of tag, permissions and id; the others are those of a mode."""
    whole = [(0x01, 7, _NOBODY), (0x04, group, _NOBODY), (0x20, other, _NOBODY), *entries]
    if entries:
        whole.append((MASK, mask, _NOBODY))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(whole))


def set_acl(path: Path, value: bytes, *, default: bool = False) -> None:
    """Give a file or folder an ACL; skips the test on a system without."""
    try:
        os.setxattr(path, DEFAULT_ACL if default else ACCESS_ACL, value)
    except (AttributeError, OSError) as problem:
        pytest.skip(f"no ACLs here: {problem}")


def let_stranger_write(path: Path) -> None:
    """Let one other user write, in a way that the mode does not show for a private group."""
    set_acl(path, acl((USER, 6, STRANGER)))


# Ways in which other users get write access. The last one needs root.
OPENINGS: dict[str, Callable[[Path], None]] = {
    "everybody": lambda path: path.chmod(path.stat().st_mode | 0o002),
    "user (ACL)": let_stranger_write,
    "another owner": lambda path: os.chown(path, STRANGER, -1),
}
WAYS = [
    pytest.param(
        way, marks=pytest.mark.skipif(way == "another owner" and os.geteuid() != 0, reason="needs root")
    )
    for way in OPENINGS
]
