"""The invocation of a command, and helpers that most commands need: errors, prompts, opening the workspace."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from switchboard_mcp.app import CommandOptions, Switchboard, load, running
from switchboard_mcp.cli.console import Console, Screen, one_line
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, ConfigWarning, Workspace
from switchboard_mcp.config.workspace_folder import is_workspace
from switchboard_mcp.errors import Failure, SwitchboardError, shell_word
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites.fuzzy import did_you_mean, nearest
from switchboard_mcp.system.user_folders import user_workspace

SEE_HELP = "`switchboard --help` lists the commands."
DRY_RUN_FIRST = "Check with --dry-run first, then use --yes."
YES = ("y", "yes")


class Invocation(Struct):
    """One run of one command: its options, parsed arguments and console."""

    options: CommandOptions
    args: Namespace
    console: Console

    @property
    def as_json(self) -> bool:
        """True if the output is for a program."""
        return bool(self.args.json)

    @property
    def may_draw(self) -> bool:
        """True if lines may be redrawn; log output in between would garble them."""
        return not self.args.log_level

    def report(self, answer: object, line: str, style: str = "") -> None:
        """Print a result: as JSON for a program, as a line for a person."""
        if self.as_json:
            self.console.out.json(answer)
        else:
            self.console.out.line(line, style)


def usage_failure(message: str, hint: str) -> Failure:
    """Return the failure of a wrong command line."""
    return Failure(code="usage", message=message, retryable=False, hint=hint)


def usage_error(message: str, hint: str) -> SwitchboardError:
    """Return the same as an exception to raise."""
    return SwitchboardError(usage_failure(message, hint))


def require_person(invocation: Invocation, command: str, hint: str) -> None:
    """Raise if nobody is present to answer a question."""
    if invocation.as_json or not sys.stdin.isatty():
        raise usage_error(f"{command}: nobody is present to confirm.", hint)


def prompt(question: str) -> str:
    """Ask a question and return the answer in lower case; `none` at the end of input."""
    sys.stdout.flush()
    try:
        return input(one_line(question) + " ").strip().lower()
    except EOFError:
        print()
        return "none"


def read_line(on_line: Callable[[str], None]) -> None:
    """Call back in the running loop with the next line of stdin; empty at its end.

    The thread is a daemon: at the end of the program nothing waits for a line that nobody writes.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        line = sys.stdin.readline()
        if not loop.is_closed():
            loop.call_soon_threadsafe(on_line, line)

    threading.Thread(target=read, daemon=True).start()


def own_command() -> list[str]:
    """Return the command that starts this program whatever the PATH is: graphical hosts have a short one."""
    beside = os.path.join(os.path.dirname(sys.executable), "switchboard")
    for path in (sys.argv[0], beside, beside + ".exe"):
        if os.path.basename(path).removesuffix(".exe") == "switchboard" and os.access(path, os.X_OK):
            return [os.path.abspath(path)]
    # Hosts start it in the folder of a project, which must not be a source of modules.
    return [sys.executable, "-P", "-m", "switchboard_mcp"]


@asynccontextmanager
async def open_switchboard(
    invocation: Invocation, workspace: Workspace | None = None, *, pinned: bool = True
) -> AsyncIterator[Switchboard]:
    """Run a Switchboard for the workspace of the command. No child is started yet."""
    redactor = Redactor()
    log = Log(level=invocation.options.log_level, style=invocation.options.log_style, redactor=redactor)
    workspace = workspace or load(invocation.options)
    # A lock covers what children offer to everyone, so no profile applies.
    profile = invocation.options.profile if pinned else ""
    async with running(
        workspace, log, redactor, pinned=pinned, full_client=True, profile=profile
    ) as switchboard:
        yield switchboard


def find_child(workspace: Workspace, name: str, console: Console) -> ChildSpec:
    """Return the configured child of that name; raises with a suggestion if there is none."""
    by_name = {spec.name: spec for spec in workspace.children if spec.kind != "builtin"}
    if name in by_name:
        return by_name[name]
    if name in workspace.absent:
        raise SwitchboardError(workspace.absent[name])
    show_warnings(workspace.warnings, console, name)
    message = f"There is no child '{name}' in {workspace.folder}.{did_you_mean(name, by_name)}"
    raise usage_error(message, where_child_is(name) or "`switchboard list` lists the children.")


def where_child_is(name: str) -> str:
    """Return how to name the user workspace, if the child is there; else an empty string."""
    folder = user_workspace(os.environ)
    if not folder or not is_workspace(folder):
        return ""
    names = (spec.name for spec in load_workspace(folder, None, os.environ).children)
    return f"It is in your user workspace: add `--workspace {shell_word(folder)}`." if name in names else ""


def find_suite(switchboard: Switchboard, name: str, console: Console) -> ChildSuite:
    """Return the suite of that name, or of the child of that name; raises with suggestions if there is none."""
    suites = switchboard.gateway.suites
    named = switchboard.gateway.view.suite_behind(name)
    if named is not None:
        return named
    by_child = {suite.child.name: suite for suite in suites.values()}
    if name in by_child:
        return by_child[name]
    workspace = switchboard.workspace
    refused = switchboard.gateway.absent.get(name) or workspace.absent.get(name)
    if refused is not None:
        raise SwitchboardError(refused)
    show_warnings(workspace.warnings, console)
    if not suites:
        message = f"There is no suite '{name}': no children in {workspace.folder}."
        raise usage_error(message, HOW_TO_ADD_CHILDREN)
    near = nearest(name, dict.fromkeys((*switchboard.gateway.view.tools, *by_child)))
    message = f"There is no suite '{name}' in {workspace.folder}."
    problem = usage_failure(message, "`switchboard list` lists the suites.")
    raise SwitchboardError(msgspec.structs.replace(problem, nearest=near) if near else problem)


def user_scope_text(workspace: Workspace) -> str:
    """Return how a workspace relates to the user workspace, in a sentence; empty if there is none."""
    user = workspace.user
    if user is None:
        return ""
    if user.left_out:
        return f"Your user workspace {user.folder} is not included: {user.left_out}."
    parts = []
    if user.children:
        parts.append(f"From your user workspace {user.folder}: {', '.join(map(one_line, user.children))}.")
    if user.shadowed:
        names = ", ".join(map(one_line, user.shadowed))
        parts.append(f"This workspace has its own {names}, which is not used: yours keeps the name.")
    return " ".join(parts)


def user_scope_members(workspace: Workspace) -> dict[str, object] | None:
    """Return the same for programs; None if there is no user workspace."""
    user = workspace.user
    if user is None or not (user.left_out or user.workspace):
        return None
    members: dict[str, object] = {"folder": user.folder, "children": user.children, "shadowed": user.shadowed}
    return members | ({"leftOut": user.left_out} if user.left_out else {})


def show_no_children(folder: str, out: Screen) -> None:
    """Print that there are no children, and how to add some."""
    out.line(f"No children in {folder}.")
    out.prose(HOW_TO_ADD_CHILDREN)


HOW_TO_ADD_CHILDREN = (
    "`switchboard init` moves the servers of your hosts here, `switchboard add NAME -- CMD` adds one; or put a file "
    "mcps/NAME/.mcp.json there, or name another folder with --workspace."
)


def show_warnings(
    warnings: Iterable[ConfigWarning], console: Console, child: str = "", *, every: bool = False
) -> None:
    """Print the warnings of the config. Those about a child only if it is the named one, or with `every`."""
    for warning in warnings:
        if every or warning.child in ("", child):
            console.warn(str(warning))
