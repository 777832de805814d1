"""Launches the process of a child, and explains why a launch failed.

This is the only place that starts a child process; in governed mode it starts only what `policy.launch.rules` has
approved. It is not aware of MCP.
"""

from __future__ import annotations

import errno
import os
import sys
from asyncio import timeout, to_thread
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from switchboard_mcp.children.catalog import cache_folder
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import OFF, SandboxWords
from switchboard_mcp.config.sections import URL_VARIABLE
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.transport.process.launcher import ChildProcess, SpawnError

if TYPE_CHECKING:
    from switchboard_mcp.policy.launch.rules import ApprovedLaunch, LaunchPolicy
    from switchboard_mcp.sandbox.denials import Denial
    from switchboard_mcp.sandbox.runner import RunningSandbox


class Launched(Struct, frozen=True):
    """A running process, in governed mode its approved launch, and its sandbox if it has one."""

    process: ChildProcess
    approved: ApprovedLaunch | None = None
    sandbox: RunningSandbox | None = None


async def launch(
    spec: ChildSpec, context: ChildContext, limit_s: float, sandbox: SandboxWords = OFF
) -> Launched | Failure:
    """Launch the command of a specification whose variables are expanded."""
    try:
        async with timeout(limit_s):
            if context.launch_policy is None:
                command = [spec.command, *spec.args]
                env = _inherited(context) | spec.env
                return await _spawn(spec, context, sandbox, command, env, spec.cwd)
            return await _launch_approved(spec, context, context.launch_policy, sandbox)
    except SpawnError as problem:
        return spawn_failure(spec, problem)
    except TimeoutError:
        return failure(
            "child_start_timeout",
            f"Child '{spec.name}': command '{spec.command}' could not be started within {limit_s:g} s.",
            child=spec.name,
        )
    except OSError as problem:  # out of file descriptors or processes
        return failure(
            "child_start_failed", f"Child '{spec.name}' could not be started: {problem}.", child=spec.name
        )


def _inherited(context: ChildContext) -> dict[str, str]:
    """Return the variables that children inherit: not the bus URL, which lets its holder send mail in any name."""
    return {name: value for name, value in context.environ.items() if name != URL_VARIABLE}


def _wrapper_command(spec: ChildSpec, context: ChildContext) -> list[str]:
    command = [sys.executable, "-P", "-m", "switchboard_mcp", "wrapper", spec.name]
    config = ["--config", context.config_file] if context.config_file else []
    through = ["--passthrough"] if "--passthrough" in spec.args else []
    return [*command, "--workspace", context.workspace, *config, *through, "--log-level", "info"]


async def _spawn(
    spec: ChildSpec,
    context: ChildContext,
    sandbox: SandboxWords,
    argv: list[str],
    env: dict[str, str],
    cwd: str,
    approved: Sequence[str] = (),
) -> Launched | Failure:
    if not sandbox.is_on:
        return Launched(await context.launcher.spawn(argv, env, cwd))
    if spec.wraps:
        # A wrapper is Switchboard itself, which starts the wrapped child in that child's sandbox. The file of a
        # wrapper could name another program, config or module path, and so leave the sandbox.
        if context.launch_policy is None:
            argv, env, cwd = _wrapper_command(spec, context), _inherited(context), context.workspace
        return Launched(await context.launcher.spawn(argv, env, cwd))
    from switchboard_mcp.sandbox import runner  # Only if a child has a sandbox.

    if context.sandboxes is None:
        cache = os.path.join(os.path.dirname(cache_folder(context.environ)), "sandbox")
        context.sandboxes = runner.SandboxRunner(context.launcher, context.workspace, context.environ, cache)

    def on_denial(denial: Denial) -> None:
        context.log.warning("sandbox.denied", child=spec.name, problem=denial.sentence(spec.name))
        context.audit_child(spec.name, f"sandbox denied {denial.kind} {denial.target}"[:200])

    # Variables that governed mode lets through are approved by name.
    inherited = (
        [] if context.launch_policy is not None and sandbox.env is None else env.keys() - spec.env.keys()
    )
    started = await context.sandboxes.start(
        spec.name,
        sandbox,
        runner.Launch(argv, env, cwd),
        inherited,
        on_denial,
        [*context.find_decisive(), *approved],
    )
    return started if isinstance(started, Failure) else Launched(started[0], sandbox=started[1])


async def _launch_approved(
    spec: ChildSpec, context: ChildContext, policy: LaunchPolicy, sandbox: SandboxWords
) -> Launched | Failure:
    # In a thread: hashing a program may mean reading a hundred megabytes.
    approved = await to_thread(policy.approve, spec)
    if isinstance(approved, Failure):
        return approved
    files = [file.path for file in approved.files]
    launched = await _spawn(spec, context, sandbox, approved.argv, approved.env, approved.cwd, files)
    if isinstance(launched, Failure):
        return launched
    process = launched.process
    pid = process.pid if launched.sandbox is None else launched.sandbox.program_pid(process.pid)
    if _runs(pid, approved):
        return structs.replace(launched, approved=approved)
    process.end()
    if launched.sandbox is not None:
        launched.sandbox.close()
    for fd in (process.stdin, process.stdout, process.stderr):
        os.close(fd)
    return failure(
        "launch_refused",
        f"Child '{spec.name}': {approved.argv[0]} was replaced while the child was starting. The process was killed.",
        child=spec.name,
    )


def _runs(pid: int, approved: ApprovedLaunch) -> bool:
    """Return True if the process runs the file that was hashed, or if the system cannot tell."""
    try:
        executable = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return True
    return any((file.device, file.inode) == (executable.st_dev, executable.st_ino) for file in approved.files)


def spawn_failure(spec: ChildSpec, problem: SpawnError) -> Failure:
    """Return the failure of a launch, naming the config key to fix."""
    where = f"{spec.source}: {spec.key}" if spec.key else spec.source
    if problem.where == "chdir" and os.path.isdir(spec.cwd):
        return failure(
            "folder_not_found",
            f"Child '{spec.name}': its sandbox hides its folder '{spec.cwd}' ({where}).",
            child=spec.name,
            hint="Use another folder as cwd: the child's own, or one in files.read of its sandbox.",
        )
    if problem.where == "chdir":
        return failure(
            "folder_not_found",
            f"Child '{spec.name}': folder '{spec.cwd}' ({where}): {problem}.",
            child=spec.name,
        )
    if problem.where.startswith("sandbox"):
        return failure(
            "sandbox_unavailable",
            f"Child '{spec.name}': its sandbox could not be set up ({problem.where.partition(':')[2]}: {problem}).",
            child=spec.name,
        )
    if problem.code == errno.ECHILD:
        return failure(
            "child_start_failed", f"Child '{spec.name}' was killed before it started.", child=spec.name
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
