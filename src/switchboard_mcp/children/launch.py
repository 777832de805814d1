"""Starting the process of a child, and saying in words why that did not work.

Owns the way from a specification to a running process; what the process says is no matter here.
"""

from __future__ import annotations

import errno
from asyncio import timeout

from switchboard_mcp.children.services import Services
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.transport.process import Process, SpawnError


async def launch(spec: ChildSpec, services: Services, limit_s: float) -> Process | Failure:
    """Start what the specification names, its variables filled in already."""
    try:
        async with timeout(limit_s):
            return await services.launcher.spawn(
                [spec.command, *spec.args], {**services.environ, **spec.env}, spec.cwd
            )
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
