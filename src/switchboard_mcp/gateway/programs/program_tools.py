"""The tools of the program suite: their arguments, their results and their handlers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.programs.program_answers import answer_run
from switchboard_mcp.gateway.programs.program_runs import InterruptedRun
from switchboard_mcp.gateway.programs.program_stubs import render_stubs
from switchboard_mcp.inprocess.server_app import ClientSession, ToolRequest, ToolSpec
from switchboard_mcp.programs.run_loop import CallMade
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.gateway.programs.program_server import ProgramServer
    from switchboard_mcp.gateway.suites.views import View

# A program may make a thousand calls in a second, more than anyone reads.
PROGRESS_S = 0.1


class StubsArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `stubs`."""

    suites: Annotated[list[str], Meta(description="suites to import; without: the names of all")] = []
    query: Annotated[str, Meta(description="only functions for this task")] = ""
    budget: Annotated[int, Meta(ge=100, le=100_000, description="tokens")] | None = None


class CheckArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `check`."""

    code: str


class RunArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `run`."""

    code: str = ""
    name: Annotated[str, Meta(description="a kept program")] = ""
    input: Annotated[Raw | UnsetType, Meta(description="its variable `input`")] = UNSET
    id: Annotated[str, Meta(description="an interrupted run to resume")] = ""


class KeepArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `keep`."""

    name: str
    code: Annotated[str, Meta(description="without: the last one you ran")] = ""
    description: str = ""


class ListArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `list`."""


class RemoveArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `remove`."""

    name: str


class CheckResult(Struct, frozen=True, omit_defaults=True):
    """Result of `check`. `calls` is the manifest: each subtool that the program can call, and whether it only reads."""

    ok: bool
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    calls: dict[str, str] = {}


class Listed(Struct, frozen=True, omit_defaults=True):
    """One kept program in the result of `list`."""

    name: str
    description: str = ""


class ProgramList(Struct, frozen=True, omit_defaults=True):
    """Result of `list`. `run` resumes an interrupted run by its id."""

    programs: list[Listed]
    interrupted: list[InterruptedRun] = []


class ProgramSession(ClientSession):
    """The session of one client."""

    def __init__(self, server: ProgramServer, principal: str, viewer: str) -> None:
        self.server = server
        self.viewer = viewer or principal

    @property
    def view(self) -> View:
        """The view of this client."""
        return self.server.gateway.view_of(self.viewer)


async def stubs(session: ProgramSession, args: StubsArgs, request: ToolRequest) -> bytes:
    """Return typed stubs of the suites, within the token budget of introspect."""
    view = session.view
    own = min((suite.introspection.budget_tokens for suite in view.suites.values()), default=1_200)
    server = session.server
    host = server.host_of(server.take_admitted(request.id).request)
    text = await render_stubs(server.checker, view, host, args.suites, args.query, args.budget or own)
    return text.encode("utf-8", "replace")


async def check(session: ProgramSession, args: CheckArgs, request: ToolRequest) -> bytes:
    """Check a program. Nothing of it runs."""
    server = session.server
    checked = await server.check(session.view, args.code, server.take_admitted(request.id).request)
    calls = {
        f"{child}.{subtool}": "write" if (child, subtool) in checked.writes else "read"
        for child, subtool in sorted(checked.manifest)
    }
    return jsonrpc.encode(CheckResult(not checked.errors, checked.errors, checked.warnings, calls))


async def run_program(session: ProgramSession, args: RunArgs, request: ToolRequest) -> object:
    """Run a program that `ManifestGate` has admitted."""
    server = session.server
    admitted = server.take_admitted(request.id)
    prepared = admitted.program
    if prepared is None:
        return failure("internal", "The program was not prepared.")
    calls, due = 0, 0.0

    def on_progress(call: CallMade) -> None:
        nonlocal calls, due
        calls += 1
        now = time.monotonic()
        if now >= due:
            due = now + PROGRESS_S
            request.progress(calls, server.limits.calls, f"{call.module}.{call.subtool} ({call.outcome})")

    host = admitted.request
    run_id, outcome = await server.runs.execute(
        server.engine, server.types, server.gateway, host, prepared, admitted.approved, on_progress
    )
    if outcome.failure is None:
        server.remember(host.session, prepared.code)
    answer_kb = server.settings.limits.answer_kb
    return answer_run(run_id, outcome, answer_kb, host, prepared.checked)


async def keep(session: ProgramSession, args: KeepArgs, request: ToolRequest) -> object:
    """Keep a program under a name, if it passes its check."""
    server = session.server
    host_request = server.take_admitted(request.id).request
    code = args.code or server.last_code(host_request.session)
    if not code:
        return failure("arguments_invalid", "keep needs `code`: no program of yours has run to its end yet.")
    checked = await server.check(session.view, code, host_request)
    if checked.errors:
        return failure("program_refused", "\n".join(checked.errors))
    path = await work_thread.run(
        work_thread.OWN, partial(server.kept.write, args.name, code, args.description)
    )
    note = " Governed mode runs it after `switchboard lock`." if server.governed else ""
    text = f'Kept as {os.path.basename(path)}. Run it with {{"name":"{args.name}"}}.{note}'
    return text.encode()


async def list_programs(session: ProgramSession, args: ListArgs, request: ToolRequest) -> bytes:
    """Return the kept programs."""
    server = session.server
    host_request = server.take_admitted(request.id).request
    programs = await work_thread.run(work_thread.OWN, server.kept.all)
    listed = [Listed(program.name, program.description) for program in programs]
    return jsonrpc.encode(ProgramList(listed, await server.runs.interrupted(host_request)))


async def remove(session: ProgramSession, args: RemoveArgs, request: ToolRequest) -> bytes:
    """Remove a kept program."""
    session.server.take_admitted(request.id)
    await work_thread.run(work_thread.OWN, partial(session.server.kept.remove, args.name))
    return f"Removed {args.name}.".encode()


TOOLS = (
    ToolSpec(
        name="stubs",
        description="Typed Python stubs of suites, to write a program with.",
        args_type=StubsArgs,
        handler=stubs,
        read_only=True,
    ),
    ToolSpec(
        name="check",
        description="Check a program: type errors with their lines, and the subtools it can call. Nothing runs.",
        args_type=CheckArgs,
        handler=check,
        read_only=True,
    ),
    ToolSpec(
        name="run",
        description="Check a program, then run it. Returns its last expression, what it printed, and its calls.",
        args_type=RunArgs,
        handler=run_program,
        destructive=True,
    ),
    ToolSpec(
        name="keep",
        description="Keep a program under a name, as a file in the workspace.",
        args_type=KeepArgs,
        handler=keep,
        idempotent=True,
    ),
    ToolSpec(
        name="list",
        description="The kept programs, and runs that were interrupted.",
        args_type=ListArgs,
        handler=list_programs,
        read_only=True,
    ),
    ToolSpec(
        name="remove",
        description="Remove a kept program.",
        args_type=RemoveArgs,
        handler=remove,
        destructive=True,
        idempotent=True,
    ),
)
