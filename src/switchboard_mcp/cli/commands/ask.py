"""`switchboard ask`: finds the suite for a sentence, has a model make a plan, shows it, asks, and runs it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import msgspec

from switchboard_mcp.app import Switchboard
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.ask.engine import Agreement, AskRequest, Participants, run_request
from switchboard_mcp.ask.host_access import api_model, choose_model, find_key, format_step, preload
from switchboard_mcp.ask.plan import PlanStep
from switchboard_mcp.ask.record import AskRecord
from switchboard_mcp.cli.console import Console, one_line, plural
from switchboard_mcp.cli.invocation import (
    Invocation,
    find_suite,
    open_switchboard,
    read_line,
    show_warnings,
    usage_error,
)
from switchboard_mcp.cli.local_client import LocalClient, ToolResult, connected
from switchboard_mcp.cli.parser import Command, flag, option, positional
from switchboard_mcp.cli.result_view import show_result
from switchboard_mcp.cli.toolbox import SuiteToolbox, load_originals
from switchboard_mcp.config.wrapped_children import read_role, wrapper_folder
from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.tool_search import ToolSearch

_decode_result = msgspec.json.Decoder(ToolResult).decode


def run(invocation: Invocation) -> int:
    """Carry out the request and show its result."""
    result, record = run_loop(lambda: gather(invocation))
    if not invocation.as_json:
        show_cost(record, invocation.console)
    answer = _decode_result(result)
    answer.raw = result
    return show_result(answer, record.steps[-1].subtool if record.steps else "ask", invocation)


COMMAND = Command(
    "ask SENTENCE [OPTIONS]",
    "Let a model find and call the subtools for a sentence. Shows the plan and asks before running anything. The\n"
    "API key comes from ANTHROPIC_API_KEY or CLAUDE_API_KEY; see `ask` in the config.",
    run=run,
    arguments=[
        positional("words", "what you want done", metavar="SENTENCE", nargs="+"),
        option("--suite", "NAME", "use this suite (default: the best match)"),
        option("--context", "TEXT", "further context: names, paths, texts"),
        flag("--yes", "run the plan without asking"),
        flag("--dry-run", "show the plan, run nothing"),
        option("--output", "DIR", "save images, audio and resources to this folder"),
    ],
    epilog=(
        "examples:\n"
        '  switchboard ask "what do you know about Ada?"\n'
        '  switchboard ask --suite files "how large is README.md?" --yes\n'
        '  switchboard ask "delete the entity Bob" --dry-run --json'
    ),
)


async def gather(invocation: Invocation) -> tuple[bytes, AskRecord]:
    """Plan and run the request; return the result and its record."""
    query = " ".join(invocation.args.words)
    workspace = load_originals(invocation.options)
    # A person is present: every step that is not read-only is shown and confirmed.
    settings = msgspec.structs.replace(workspace.config.ask, confirm="writes")
    api = api_model(settings, os.environ)
    model = choose_model("api" if settings.backend == "auto" else settings.backend, api, None)
    try:
        async with open_switchboard(invocation, workspace) as switchboard:
            switchboard.context.redactor.register(find_key(os.environ))
            suite = pick(switchboard, invocation, query)
            async with connected(switchboard.gateway) as host:

                async def meet() -> LocalClient:
                    return host

                if api is not None:
                    switchboard.context.start_task(preload(api))
                party = Participants(
                    toolbox=SuiteToolbox(switchboard.gateway, suite.source, meet),
                    model=model,
                    consent=ShellConsent(invocation.console, suite.child.name, yes=invocation.args.yes),
                    settings=settings,
                    trusted=lambda subtool: False,
                    role=read_role(wrapper_folder(workspace.folder, suite.child.spec)),
                )
                request = AskRequest(query, invocation.args.context, invocation.args.dry_run)
                return await run_request(request, party, lambda done, total, message: None)
    finally:
        if api is not None:
            await api.close()


def pick(switchboard: Switchboard, invocation: Invocation, query: str) -> ChildSuite:
    """Return the named suite, or the one with the subtool that matches the sentence best."""
    suites = switchboard.gateway.suites
    if invocation.args.suite:
        return find_suite(switchboard, invocation.args.suite, invocation.console)
    if len(suites) == 1:
        return next(iter(suites.values()))
    finder = ToolSearch()
    finder.refresh(list(suites.values()))
    hits = finder.find(query, 1)
    if hits:
        return suites[hits[0].suite]
    show_warnings(switchboard.workspace.warnings, invocation.console)
    unknown = [suite.child.name for suite in suites.values() if suite.child.snapshot is None]
    never = f" Not searched, since never started here: {', '.join(unknown)}." if unknown else ""
    message = f"No suite in {switchboard.workspace.folder} matches this sentence.{never}"
    raise usage_error(message, "Name one with --suite; `switchboard list` shows them.")


class ShellConsent:
    """Shows every plan. Asks about the first, and about any that is not read-only."""

    def __init__(self, console: Console, child: str, *, yes: bool) -> None:
        self._console = console
        self._child = child
        self._yes = yes
        self._asked = False

    async def request(self, steps: Sequence[PlanStep], grave: Sequence[PlanStep]) -> Agreement:
        """Show the steps and ask whether to run them."""
        err = self._console.err
        for step in steps:
            err.line(f"{err.paint(one_line(self._child), 'bold cyan')}  {one_line(format_step(step))}")
        first, self._asked = not self._asked, True
        if self._yes or not (first or grave):
            return "yes"
        if not (sys.stdin.isatty() and err.is_terminal):
            if not grave:
                return "yes"
            names = ", ".join(step.subtool for step in grave)
            message = f"This needs confirmation, and nobody is present to give it: {names}."
            raise refused("ask_unconfirmed", message, hint="Add --yes to run the plan as it is.")
        err.stream.write("Run it? [y/N] ")
        err.stream.flush()
        line: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        read_line(line.set_result)
        answer = await line
        return "yes" if answer.strip().lower() in ("y", "yes") else "no"


def show_cost(record: AskRecord, console: Console) -> None:
    """Show turns, tokens and time on a terminal."""
    use = record.usage_summary()
    if use.turns and console.err.is_terminal:
        tokens = use.input_tokens + use.output_tokens + use.cached_tokens
        console.err.line(
            f"{use.model}: {plural(use.turns, 'turn')}, {plural(tokens, 'token')}, {use.total_ms / 1000:.1f} s",
            "dim",
        )
