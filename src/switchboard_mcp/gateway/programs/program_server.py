"""The program suite: typed stubs of the other suites, checks, runs, and programs that were kept under a name.

An in-process server, a child like any other. A call of `run` passes `ManifestGate` first, which prepares the program
and has it approved; what it calls goes through `program_calls`.
"""

from __future__ import annotations

from asyncio import Task
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import PROGRAM_NAME
from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.programs.checker import ProgramChecker
from switchboard_mcp.gateway.programs.manifest_gate import ManifestGate
from switchboard_mcp.gateway.programs.prepared import CheckedProgram, PreparedProgram
from switchboard_mcp.gateway.programs.program_calls import ProgramRun
from switchboard_mcp.gateway.programs.program_runs import ProgramRuns
from switchboard_mcp.gateway.programs.program_tools import TOOLS, ProgramSession, RunArgs
from switchboard_mcp.inprocess.server_app import (
    ClientIdentity,
    Notifier,
    Resource,
    ToolSpec,
)
from switchboard_mcp.programs.engine import Limits
from switchboard_mcp.programs.helper_engine import HelperEngine
from switchboard_mcp.programs.kept_programs import KeptProgram, kept_programs_of
from switchboard_mcp.programs.learned_types import LearnedTypes
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildContext
    from switchboard_mcp.gateway.gate.call_gate import CallGate
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.pipeline.calls import PipelineRequest
    from switchboard_mcp.gateway.session import Session
    from switchboard_mcp.gateway.suites.views import View
    from switchboard_mcp.programs.engine import Engine

INSTRUCTIONS = (
    "Use a program where several calls depend on each other, or where results are large: `stubs` of the suites, then "
    "`run`. Write `import github`, `issues = await github.list_issues(repo='a/b')` at the top level, "
    "`asyncio.gather` for calls at once; the last expression is the answer. `run` checks names and types before "
    "anything is called."
)
# Programs whose code is remembered, so that `keep` need not repeat it.
MAX_REMEMBERED = 100
# A larger value is refused by the engine; of one above `limits.answerKb` the host gets a head and a handle.
MAX_VALUE_KB = 4_096
MAX_INPUT_BYTES = 1024 * 1024


class Admitted(Struct, frozen=True):
    """A call that may proceed to its handler; a call of `run` with its program."""

    request: PipelineRequest
    program: PreparedProgram | None = None
    approved: bool = False


class ProgramServer:
    """Serves the tools of the program suite. Implements `ServerApp`."""

    name = PROGRAM_NAME
    instructions = INSTRUCTIONS
    resources: Sequence[Resource] = ()
    gateway: Gateway  # set later: the gateway has this server as a child

    def __init__(self, workspace: Workspace, context: ChildContext) -> None:
        self.settings = settings = workspace.config.programs
        self.governed = workspace.config.governance.mode == "governed"
        self.kept = kept_programs_of(workspace)
        self.limits = Limits(
            seconds=settings.limits.seconds,
            memory_mb=settings.limits.memory_mb,
            calls=settings.limits.calls,
            at_once=settings.limits.at_once,
            code_kb=settings.limits.code_kb,
            answer_kb=max(settings.limits.answer_kb, MAX_VALUE_KB),
            recursion=settings.limits.recursion,
        )
        self.runs = ProgramRuns(self.limits, context)
        self.engine: Engine = HelperEngine(context.launcher, self.limits)
        self.types = context.result_types = LearnedTypes(context.catalog, context.pins)
        self.checker = ProgramChecker(self.engine, self.types)
        self._context = context
        self._admitted: dict[tuple[Session, bytes], Admitted] = {}
        self._last_code: OrderedDict[object, str] = OrderedDict()  # by session, or principal without one

    def gate(self, gate: CallGate) -> ManifestGate:
        """Return the gate of the program suite, around that of all suites."""
        return ManifestGate(self, gate)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools of the suite."""
        return TOOLS

    @property
    def redactor(self) -> Any:
        """The redactor of the workspace."""
        return self._context.redactor

    @property
    def start_task(self) -> Callable[[Coroutine[Any, Any, None]], Task[None]]:
        """Starts a task of the gateway."""
        return self._context.start_task

    async def open_session(self, notifier: Notifier, client: ClientIdentity) -> ProgramSession:
        """Open the session of a client."""
        return ProgramSession(self, client.principal, client.viewer)

    def stop(self) -> None:
        """Prepare for the end: runs that are cancelled from now on can be resumed in the next process."""
        self.runs.stop()

    async def close(self) -> None:
        """End the processes of the engine."""
        await self.engine.close()

    def log_problem(self, problem: BaseException) -> None:
        """Log a bug of ours."""
        self._context.log.error("internal", child=self.name, problem=repr(problem))

    async def prepare(self, request: PipelineRequest) -> PreparedProgram:
        """Read and check the program of a call of `run`. Raises if it may not run."""
        try:
            args = msgspec.json.decode(request.target()[1], type=RunArgs)
        except msgspec.DecodeError as problem:
            raise refused("arguments_invalid", f"run: {problem}.") from None
        if bool(args.code) + bool(args.name) + bool(args.id) != 1:
            raise refused("arguments_invalid", "run needs `code`, or the `name` of a kept program.")
        code, input, approval = args.code, b"" if args.input is UNSET else bytes(args.input), ""
        if args.name:
            code = (await self.read_kept(args.name)).code
        elif args.id:
            start = (await self.runs.recorded(args.id, request)).start
            code, input, approval = start.code, start.input, start.note.get("approved", "")
        if len(input) > MAX_INPUT_BYTES:
            raise refused("program_limit", f"The input is larger than {MAX_INPUT_BYTES // 1024} KiB.")
        view = self.gateway.view_of(request.session.viewer)
        checked = await self.check(view, code, request)
        if checked.errors:
            raise refused("program_refused", "\n".join(checked.errors))
        program = PreparedProgram(code, checked, input, args.name, args.id)
        # A function may now call another subtool, and a write in place of a read: then the user is asked again.
        return replace(program, was_approved=bool(approval) and approval == program.approval)

    async def check(self, view: View, code: str, request: PipelineRequest) -> CheckedProgram:
        """Check a program against the suites of a view. Children whose tools are unknown are started."""
        size = len(code.encode("utf-8", "replace"))
        if size > self.settings.limits.code_kb * 1024:
            most = self.settings.limits.code_kb
            message = f"The program has {size // 1024 + 1} KiB, limits.codeKb allows {most}."
            raise refused("program_limit", message)
        return await self.checker.check(view, code, self.host_of(request))

    def host_of(self, request: PipelineRequest) -> ProgramRun:
        """Return an object that requests the tools of suites on behalf of a host."""
        return ProgramRun("", self.gateway, request, frozenset(), frozenset())

    async def read_kept(self, name: str) -> KeptProgram:
        """Return a kept program. In governed mode it must be in the lock, unchanged."""
        program = await work_thread.run(work_thread.OWN, partial(self.kept.read, name))
        if self.governed:
            pins = self._context.pins
            locked = pins.program_hash(name) if pins is not None else ""
            if not locked:
                raise refused("program_not_locked", f"The program '{name}' is not in the lock.")
            if locked != program.hash:
                message = f"The program '{name}' has changed since it was locked."
                command = f"switchboard lock --accept program:{name}"
                hint = f"Review the program, then run `{command}` and commit the lock file."
                raise refused("program_not_locked", message, hint=hint)
        return program

    def admitted(
        self, request: PipelineRequest, program: PreparedProgram | None = None, *, approved: bool = False
    ) -> None:
        """Keep a call, and its program, for its handler."""
        for key, other in list(self._admitted.items()):
            if other.request.finished:  # refused after this, by a limit or middleware
                del self._admitted[key]
        self._admitted[request.session, request.host_id] = Admitted(request, program, approved)

    def take_admitted(self, id: bytes) -> Admitted:
        """Return the call that the gateway has sent under this id."""
        for key, admitted in self._admitted.items():
            if admitted.request.id == id:
                del self._admitted[key]
                return admitted
        raise refused("internal", "The call did not pass the gate of the program suite.")

    def remember(self, session: Session, code: str) -> None:
        """Remember the last program of a client that ran to its end, until its session ends."""
        for owner in [owner for owner in self._last_code if getattr(owner, "closed", False)]:
            del self._last_code[owner]
        owner = session.process_owner
        self._last_code[owner] = code
        self._last_code.move_to_end(owner)
        if len(self._last_code) > MAX_REMEMBERED:
            self._last_code.popitem(last=False)

    def last_code(self, session: Session) -> str:
        """Return the last program of a client that ran to its end, or an empty string."""
        return self._last_code.get(session.process_owner, "")
