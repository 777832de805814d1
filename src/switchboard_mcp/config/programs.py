"""The `programs` section of the configuration.

The docstring under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

PROGRAM_NAME = "program"  # the built-in child that runs programs
PROGRAM_DESCRIPTION = (
    "Run a Python program that calls subtools of other suites; only its value comes back. Begin with `stubs`."
)
PROGRAM_FOLDER = ".switchboard/programs"
# A run waits for its children and for the user. Its own time is limited by `limits.seconds`.
LONGEST_RUN_MS = 86_400_000


class ProgramLimits(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Limits of each program."""

    seconds: Annotated[float, Meta(gt=0, le=3_600)] = 10
    """Time that the program itself may compute, in seconds. Waiting for calls does not count."""
    memory_mb: Annotated[int, Meta(ge=1, le=512)] = 64
    """Memory of the program, in MiB."""
    calls: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Calls of subtools in one run."""
    at_once: Annotated[int, Meta(ge=1, le=1_000)] = 8
    """Calls of one run that are under way at the same time. Others wait."""
    code_kb: Annotated[int, Meta(ge=1, le=1_024)] = 200
    """Size of the code, in KiB."""
    answer_kb: Annotated[int, Meta(ge=1, le=16_384)] = 32
    """Size of the value that is answered, in KiB, and of the printed lines. Of a larger value the host gets the
    beginning, and a handle to the rest."""
    recursion: Annotated[int, Meta(ge=10, le=1_000)] = 200
    """Depth of recursion."""


class ProgramSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The built-in `program_suite`: programs that call subtools of the other suites. Needs the extra `programs`."""

    enabled: bool = False
    """Enable the program suite."""
    approve: Literal["writes", "always", "never"] = "writes"
    """When the user is asked before a run, once, with the code and the subtools it can call. `writes`: if it can call a
    subtool that is not declared read-only; `always`: before every run; `never`: only if a rule of `gate` asks about one
    of its calls."""
    folder: Annotated[str, Meta(min_length=1)] = PROGRAM_FOLDER
    """Folder of kept programs, relative to the workspace."""
    limits: ProgramLimits = field(default_factory=ProgramLimits)
    """Limits of each program."""
