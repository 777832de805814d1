"""Finds what a system offers for sandboxes, each by using it in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Container, Iterator
from typing import Any

from msgspec.structs import replace

from switchboard_mcp.sandbox.mechanisms import bubblewrap_argv
from switchboard_mcp.sandbox.programs import find_program, is_system
from switchboard_mcp.sandbox.promises import Support

CONFINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "confine.py")
PROBE_TIMEOUT_S = 30
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")


def find_support(mechanisms: Container[str] = ()) -> Support:
    """Return what this system offers, for the mechanisms that children name."""
    base = Support(is_root=os.geteuid() == 0, system=sys.platform, programs=find_programs())
    if sys.platform != "linux":
        return base
    support = Support.of(_run_probe([*interpreter(), CONFINE]), is_root=base.is_root, programs=base.programs)
    if "bubblewrap" in mechanisms or not support.mount:
        return replace(support, bubblewrap=find_bubblewrap())
    return support


def find_programs() -> dict[str, str]:
    """Return the programs that make sandboxes, by mechanism."""
    bubblewrap = shutil.which("bwrap")
    return {"bubblewrap": bubblewrap} if bubblewrap else {}


def find_bubblewrap() -> Support | None:
    """Return what is there inside bubblewrap, or None if it does not work here."""
    program = find_programs().get("bubblewrap")
    if program is None:
        return None
    system = [path for path in SYSTEM if os.path.exists(path) and not os.path.islink(path)]
    outside = [path for path in tools() if not is_system(path)]
    view: list[tuple[str, bytes, Any]] = [("tmp", b"/tmp", 1 << 16), ("ro", b"/proc", None)]
    view += [("ro", os.fsencode(path), None) for path in (*system, *outside)]
    view += [("link", os.fsencode(path), os.fsencode(target)) for path, target in _links()]
    found = _run_probe(bubblewrap_argv(program, view, True, [*interpreter(), CONFINE, "inside"]))
    if not found:
        return None
    is_root = os.geteuid() == 0
    return replace(Support.of(found, is_root=is_root), pids=True, programs={"bubblewrap": program})


def interpreter() -> list[str]:
    """Return the command line of a bare interpreter, without its virtual environment."""
    return [os.path.realpath(sys.executable), "-I", "-S"]


def tools() -> list[str]:
    """Return the files that `confine` needs inside bubblewrap: an interpreter and itself."""
    needed = sorted({CONFINE, *find_program(interpreter(), {}, "/").read})
    return [path for path in needed if not any(path.startswith(f"{folder}/") for folder in needed)]


def _links() -> Iterator[tuple[str, str]]:
    for path in SYSTEM:
        if os.path.islink(path):
            yield path, os.readlink(path)


def _run_probe(argv: list[str]) -> dict[str, int]:
    try:
        ran = subprocess.run(argv, capture_output=True, check=False, timeout=PROBE_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (word.partition("=") for word in ran.stdout.decode("ascii", "replace").split())
    return {name: int(value) for name, _, value in pairs if value.isdecimal()}
