"""Starting the process of a child, and saying in words why that did not work.

Owns the way from a specification to a running process; what the process says is no matter here. This is the only place
that starts one, and in governed mode it starts only what `policy.launch.rules` has approved.
"""

from __future__ import annotations

import errno
import os
from asyncio import timeout, to_thread
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sections import URL_VARIABLE
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.transport.process.launcher import ChildProcess, SpawnError

if TYPE_CHECKING:
    from switchboard_mcp.policy.launch.rules import ApprovedLaunch, LaunchPolicy


class Launched(Struct, frozen=True):
    """A running process, and in governed mode the approval it runs by."""

    process: ChildProcess
    approved: ApprovedLaunch | None = None


async def launch(spec: ChildSpec, context: ChildContext, limit_s: float) -> Launched | Failure:
    """Start what the specification names, its variables filled in already."""
    try:
        async with timeout(limit_s):
            if context.launch_policy is None:
                command = [spec.command, *spec.args]
                # Whoever has the address of the bus can write mail in anybody's name.
                inherited = {name: value for name, value in context.environ.items() if name != URL_VARIABLE}
                env = inherited | spec.env
                return Launched(await context.launcher.spawn(command, env, spec.cwd))
            return await _launch_approved(spec, context, context.launch_policy)
    except SpawnError as problem:
        return spawn_failure(spec, problem)
    except TimeoutError:
        return failure(
            "child_start_timeout",
            f"Child '{spec.name}': command '{spec.command}' could not be started within {limit_s:g} s.",
            child=spec.name,
        )
    except OSError as problem:  # no descriptor or process left for it
        return failure(
            "child_start_failed", f"Child '{spec.name}' could not be started: {problem}.", child=spec.name
        )


async def _launch_approved(spec: ChildSpec, context: ChildContext, guard: LaunchPolicy) -> Launched | Failure:
    # In a thread, since a program may have a hundred megabytes to be read.
    approved = await to_thread(guard.approve, spec)
    if isinstance(approved, Failure):
        return approved
    process = await context.launcher.spawn(approved.argv, approved.env, approved.cwd)
    if _runs(process.pid, approved):
        return Launched(process, approved)
    process.end()
    for fd in (process.stdin, process.stdout, process.stderr):
        os.close(fd)
    return failure(
        "launch_refused",
        f"Child '{spec.name}': {approved.argv[0]} was replaced while the child was starting; it was ended.",
        child=spec.name,
    )


def _runs(pid: int, approved: ApprovedLaunch) -> bool:
    """Whether the process runs the very file that was read. Where the system does not tell, its marks must do."""
    try:
        found = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return True
    return any((mark.device, mark.inode) == (found.st_dev, found.st_ino) for mark in approved.marks)


def spawn_failure(spec: ChildSpec, problem: SpawnError) -> Failure:
    """Why the operating system did not start a command, in words, with the place to mend it."""
    where = f"{spec.source}: {spec.key}" if spec.key else spec.source
    if problem.where == "chdir":
        return failure(
            "folder_not_found",
            f"Child '{spec.name}': folder '{spec.cwd}' ({where}): {problem}.",
            child=spec.name,
        )
    if problem.code == errno.ECHILD:
        return failure(
            "child_start_failed", f"Child '{spec.name}' was killed before it had started.", child=spec.name
        )
    if problem.code == errno.EACCES:
        return failure(
            "command_not_executable",
            f"Child '{spec.name}': command '{spec.command}' ({where}) is not executable.",
            child=spec.name,
        )
    if problem.code == errno.ENOENT:
        return failure(
            "command_not_found",
            f"Child '{spec.name}': command '{spec.command}' ({where}) was not found.",
            child=spec.name,
        )
    return failure(
        "child_start_failed",
        f"Child '{spec.name}': command '{spec.command}' ({where}): {problem}.",
        child=spec.name,
    )
