"""Confines the current process and becomes the worker of Monty. Linux only.

Run by file name in a bare interpreter (`-I -S`) with the file of the sandbox module, a plan, and a program.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import signal
import sys
from importlib.util import module_from_spec, spec_from_file_location

PR_SET_PDEATHSIG = 1


def main(file: str, plan: str, program: str, *arguments: str) -> None:
    """Apply the plan, and become the program."""
    spec = spec_from_file_location("confine", file)
    assert spec is not None
    assert spec.loader is not None
    confine = module_from_spec(spec)
    spec.loader.exec_module(confine)
    steps = marshal.loads(bytes.fromhex(plan))
    confine.close_on_exec(None)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    confine.set_limits(steps["limits"])
    confine.drop_privileges()
    confine.restrict_files(steps["landlock"])
    confine.filter_calls(steps["seccomp"])
    os.execve(program, [program, *arguments], {})


if __name__ == "__main__":
    main(*sys.argv[1:])
