"""A program that has passed its check: its code, what it can call, and the modules it runs with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from switchboard_mcp.programs.engine import Module

# What a program may call: the child and the subtool.
Subtool = tuple[str, str]


class CheckedProgram(Struct, frozen=True):
    """The outcome of a check. A program with errors does not run; warnings are for its author.

    `modules` hold the functions of the manifest; `children` has the child of each module, and `parameters` the
    arguments of the subtools by the names that the program uses, if any differ.
    """

    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    manifest: frozenset[Subtool] = frozenset()
    writes: frozenset[Subtool] = frozenset()
    modules: Sequence[Module] = ()
    children: Mapping[str, str] = {}
    parameters: Mapping[Subtool, Mapping[str, str]] = {}


class PreparedProgram(Struct, frozen=True):
    """A program about to run. `name` is that of a kept one; `run_id` that of an interrupted run to resume."""

    code: str
    checked: CheckedProgram
    input: bytes = b""
    name: str = ""
    run_id: str = ""
    was_approved: bool = False  # when the run began

    @property
    def approval(self) -> str:
        """The text under which an approval is recorded: it is for these subtools alone."""
        subtools = [(child, subtool, (child, subtool) in self.writes) for child, subtool in self.manifest]
        return sha256(repr(sorted(subtools)).encode("utf-8", "replace")).hexdigest()

    @property
    def manifest(self) -> frozenset[Subtool]:
        """The subtools that it may call."""
        return self.checked.manifest

    @property
    def writes(self) -> frozenset[Subtool]:
        """Those of them that are not declared read-only."""
        return self.checked.writes
