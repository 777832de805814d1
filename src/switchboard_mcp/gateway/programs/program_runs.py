"""Runs programs that were admitted, and resumes runs that were interrupted.

A run has a log in the user's state folder. If this process ends, or its host disconnects, the run stays there; the same
client, by its token, profile and program, goes on with it by its id, under the policies of that time. Nothing that may
have been carried out is repeated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.programs.own_functions import OwnFunctions
from switchboard_mcp.gateway.programs.program_calls import ProgramRun
from switchboard_mcp.programs.engine import Engine, Limits, Program, Settled
from switchboard_mcp.programs.helper_pool import CLIENT
from switchboard_mcp.programs.learned_types import LearnedTypes
from switchboard_mcp.programs.run_log import RecordedRun, RunLog, RunLogError, RunStore
from switchboard_mcp.programs.run_loop import (
    CallMade,
    CallSubtool,
    MayRepeat,
    Outcome,
    open_log,
    recover,
    run,
)
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.system import work_thread
from switchboard_mcp.system.user_folders import workspace_state_folder

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildContext
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.pipeline.calls import PipelineRequest
    from switchboard_mcp.gateway.programs.prepared import CheckedProgram, PreparedProgram

# More interrupted runs are not listed.
MAX_LISTED = 20
TITLE_CHARS = 80


class InterruptedRun(Struct, frozen=True):
    """A run that can be resumed."""

    id: str
    code: str


class ProgramRuns:
    """The runs of a workspace."""

    def __init__(self, limits: Limits, context: ChildContext) -> None:
        self.limits = limits
        self._context = context
        folder = workspace_state_folder(context.environ, "programs", context.workspace)
        self._store = RunStore(folder) if os.path.isabs(folder) else None
        self._version = version("pydantic-monty")

    def stop(self) -> None:
        """Let runs that are cancelled from now on stay unfinished."""
        if self._store is not None:
            self._store.is_stopping = True

    async def execute(
        self,
        engine: Engine,
        types: LearnedTypes,
        gateway: Gateway,
        request: PipelineRequest,
        program: PreparedProgram,
        approved: bool,
        on_progress: Callable[[CallMade], None],
    ) -> tuple[str, Outcome]:
        """Run a program to its end, or resume an interrupted run; return its id and its outcome."""
        CLIENT.set(request.session.process_owner)
        if program.run_id:
            log, recorded = await work_thread.run(work_thread.OWN, partial(self._reopen, program.run_id))
            if recorded.end is not None:
                log.close()
                end = recorded.end
                return log.run, Outcome(end.value, end.printed, [], end.failure, log.run)
            call, options = self._options(types, gateway, request, program, approved, log.run)
            return log.run, await recover(engine, recorded, self._version, call, log, on_progress, *options)
        fresh = Program(program.code, program.checked.modules, program.input, _seed(), time.time())
        note = {**_client(request), "approved": program.approval if approved else ""}
        created: RunLog | None = await work_thread.run(work_thread.OWN, partial(self._create, fresh, note))
        run_id = created.run if created is not None else f"p{os.urandom(4).hex()}"
        call, options = self._options(types, gateway, request, program, approved, run_id)
        return run_id, await run(engine, fresh, call, created, self.limits, on_progress, *options)

    def _options(
        self,
        types: LearnedTypes,
        gateway: Gateway,
        request: PipelineRequest,
        program: PreparedProgram,
        approved: bool,
        run_id: str,
    ) -> tuple[CallSubtool, tuple[MayRepeat, Callable[[], bool]]]:
        """Return what calls subtools for a run, what says which may be repeated, and if it can be resumed later."""
        checked, session = program.checked, request.session
        allowed = checked.manifest if approved else frozenset()
        calls = ProgramRun(run_id, gateway, request, checked.manifest, allowed)
        own = OwnFunctions(gateway, calls)

        async def call(module: str, subtool: str, arguments: bytes) -> Settled:
            child = checked.children.get(module)
            if child is None:
                return await own.call(module, subtool, arguments)
            named = _renamed(arguments, checked.parameters.get((child, subtool)))
            settled = await calls.call(child, subtool, named)
            suite = gateway.view_of(session.viewer).suite_of(child)
            tool = suite.child.inventory.tools.get(subtool) if suite is not None else None
            if suite is None or tool is None:
                return settled
            return await types.settle(suite.child.spec, tool, f"{module}.{subtool}", settled)

        def is_stopping() -> bool:
            return session.closed or (self._store is not None and self._store.is_stopping)

        return call, (partial(_only_reads, checked), is_stopping)

    async def recorded(self, run_id: str, request: PipelineRequest) -> RecordedRun:
        """Return a run of the client of a request. Raises `program_unknown` if it has none of that id."""
        return await work_thread.run(work_thread.OWN, partial(self._read, run_id, _client(request)))

    async def interrupted(self, request: PipelineRequest) -> list[InterruptedRun]:
        """Return the runs of the client of a request that can be resumed, the newest first."""
        return await work_thread.run(work_thread.OWN, partial(self._interrupted, _client(request)))

    def _interrupted(self, client: dict[str, str]) -> list[InterruptedRun]:
        interrupted: list[InterruptedRun] = []
        try:
            ids = self._store.unfinished() if self._store is not None else []
        except OSError:
            return interrupted
        for id in reversed(ids):
            try:
                start = self._read(id, client).start
            except Exception:  # noqa: BLE001 - of another client, or not readable: not listed
                continue
            interrupted.append(InterruptedRun(id, start.code.strip()[:TITLE_CHARS]))
            if len(interrupted) == MAX_LISTED:
                break
        return interrupted

    def _create(self, program: Program, note: dict[str, str]) -> RunLog | None:
        """Create the log of a run; without one, it ends with this process."""
        if self._store is None:
            return None
        try:
            return open_log(self._store, program, self.limits, self._version, note)
        except OSError as problem:
            self._context.log.warning("programs.no_log", problem=str(problem))
            return None

    def _read(self, run_id: str, client: dict[str, str]) -> RecordedRun:
        unknown = refused("program_unknown", f"There is no run '{run_id[:64]}' of yours to resume.")
        try:
            if self._store is None:
                raise unknown
            recorded = self._store.read(run_id)
        except (OSError, ValueError, RunLogError):
            raise unknown from None
        if not client.items() <= recorded.start.note.items():
            raise unknown
        return recorded

    def _reopen(self, run_id: str) -> tuple[RunLog, RecordedRun]:
        assert self._store is not None
        try:
            return self._store.reopen(run_id)
        except BlockingIOError:
            raise refused("program_unknown", f"The run '{run_id[:64]}' is still running.") from None
        except (OSError, RunLogError) as problem:
            raise refused("program_unknown", f"The run cannot be resumed: {problem}.") from None


def _client(request: PipelineRequest) -> dict[str, str]:
    """Return whose a run is. Hosts on pipes have no token, so programs and profiles tell them apart."""
    session = request.session
    return {"principal": session.principal, "viewer": session.viewer, "client": request.client}


def _only_reads(checked: CheckedProgram, module: str, subtool: str) -> bool:
    child = checked.children.get(module)
    return child is None or (child, subtool) not in checked.writes


def _renamed(arguments: bytes, names: Mapping[str, str] | None) -> bytes:
    """Return arguments under the names of the subtool."""
    if not names:
        return arguments
    members: dict[str, Raw] = jsonrpc.decode_members(arguments)
    return jsonrpc.encode({names.get(name, name): value for name, value in members.items()})


def _seed() -> int:
    return int.from_bytes(os.urandom(4))
