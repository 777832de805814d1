"""Checks what programs need: the interpreter, and the parts of its confinement that hold on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.doctor.findings import NOTE, PROBLEM, Finding
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.programs.engine import Limits
from switchboard_mcp.programs.helper_client import HelperLostError, HelperTimeoutError
from switchboard_mcp.programs.helper_engine import HelperEngine
from switchboard_mcp.system.installation import install_hint
from switchboard_mcp.transport.process.launcher import Launcher, SpawnError

# The parts of the confinement, by the names that a helper process reports.
PARTS = {
    "limits": "resource limits",
    "privileges": "no privileges",
    "landlock": "Landlock (files)",
    "seccomp": "seccomp (system calls)",
}
OFF = "set programs.enabled to false"


def program_findings(workspace: Workspace) -> list[Finding]:
    """Return the findings about programs, none if they are off. Starts a helper process."""
    settings = workspace.config.programs
    if not settings.enabled:
        return []
    try:
        parts = run_loop(lambda: _held_parts(settings.limits.memory_mb))
    except (SpawnError, OSError, HelperLostError, HelperTimeoutError) as problem:
        message = f"The process that runs programs does not start: {problem}."
        return [Finding(PROBLEM, message, f"Install the extra again. {install_hint('programs')} Or {OFF}.")]
    return [confinement(parts)]


def confinement(parts: Sequence[str]) -> Finding:
    """Return the finding about the parts of the confinement that hold."""
    holding = ", ".join(text for part, text in PARTS.items() if part in parts)
    missing = ", ".join(text for part, text in PARTS.items() if part not in parts)
    if not missing:
        return Finding(NOTE, f"Programs are confined by {holding}.")
    message = f"Warning: programs are not confined by {missing} here, only by {holding or 'a process of their own'}."
    return Finding(NOTE, message, f"Use a Linux kernel that has it, or {OFF}.")


async def _held_parts(memory_mb: int) -> list[str]:
    async with aclosing(Launcher(asyncio.get_running_loop())) as launcher:
        engine = HelperEngine(launcher, Limits(memory_mb=memory_mb))
        try:
            return await engine.confine()
        finally:
            await engine.close()
