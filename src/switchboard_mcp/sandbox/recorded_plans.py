"""The plan of a child's first start, kept beside its cache: what a later start may use at most.

Who changes the child's entry gets a new record. A plan that became wider by itself, through files that the child or its
package has left, is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.config.sandbox import SandboxWords
from switchboard_mcp.sandbox.plan import Launch, Places, SandboxPlan, is_covered
from switchboard_mcp.sandbox.programs import contains_home, is_python
from switchboard_mcp.system.atomic_write import write_atomically

# Entries of one child that are kept: of its profiles, hosts and last changes.
MAX_RECORDS = 32
DECIDING_VARIABLES = ("PATH", "PYTHONPATH", "NODE_PATH", "HOME")


class RecordedPlan(Struct, frozen=True):
    """What a child could read and write at its first start."""

    read: list[str]
    write: list[str]


_decode = msgspec.json.Decoder(dict[str, RecordedPlan]).decode


def plan_file(places: Places) -> str:
    """Return the file with the recorded plans of a child."""
    return f"{places.cache}.plan.json"


def wider_paths(places: Places, words: SandboxWords, launch: Launch, plan: SandboxPlan) -> list[str]:
    """Return the paths that a plan adds to the recorded one. The first plan of an entry is recorded."""
    path = plan_file(places)
    try:
        with open(path, "rb") as file:
            records = _decode(file.read())
    except (OSError, msgspec.MsgspecError):
        records = {}
    variables = [launch.env.get(name, "") for name in DECIDING_VARIABLES]
    entry = (words, launch.argv, launch.cwd, variables, plan.mechanism, places.workspace)
    key = sha256(repr(entry).encode("utf-8", "backslashreplace")).hexdigest()[:16]
    known = records.get(key)
    if known is None:
        records[key] = RecordedPlan(_real(plan.read), _real(plan.write))
        kept = dict(list(records.items())[-MAX_RECORDS:])
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        write_atomically(path, msgspec.json.encode(kept), sync=False)
        return []
    allowed = (*known.read, *known.write)
    wider = [path for path in _real(plan.read) if not is_covered(path, allowed) and not _is_runtime(path)]
    return [*wider, *(path for path in _real(plan.write) if not _is_within(path, known.write))]


def _real(paths: Iterable[str]) -> list[str]:
    found = dict.fromkeys(os.path.realpath(path) for path in paths)
    return [path.encode("utf-8", "backslashreplace").decode() for path in found]


def _is_within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _is_runtime(path: str) -> bool:
    """Return True for an installed Python or node, which may have been updated."""
    return not contains_home(path) and (is_python(path) or os.path.isfile(os.path.join(path, "bin/node")))
