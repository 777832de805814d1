"""`real_path` agrees with `os.path.realpath`."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

from switchboard_mcp.system.real_paths import real_path

NAMES = (
    "folder",
    "file",
    "link",
    "loop",
    "dangling",
    "to_file",
    "up",
    "absent",
    ".",
    "..",
    "",
    "deleted (deleted)",
)


def test_a_real_path_is_that_of_the_standard_library(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder" / "folder").mkdir(parents=True)
    for place in (root, root / "folder"):
        (place / "file").touch()
        (place / "deleted (deleted)").touch()
        (place / "link").symlink_to(root / "folder")
        (place / "loop").symlink_to("loop")
        (place / "dangling").symlink_to(tmp_path / "not" / "here")
        (place / "to_file").symlink_to("file")
        (place / "up").symlink_to("..")
    (root / "folder" / "folder" / "link").symlink_to("../../up/root/link")
    for names in product(NAMES, repeat=3):
        path = os.path.join(str(root), *names)
        assert real_path(path) == os.path.realpath(path)
    for path in (
        "/",
        "//",
        "/absent",
        "/proc/self/fd/0",
        "/proc/self",
        "/dev/stdin",
        "/x" * 5000,
        str(root) + "\x00",
    ):
        try:
            expected = os.path.realpath(path)
        except ValueError:
            continue
        assert real_path(path) == expected
