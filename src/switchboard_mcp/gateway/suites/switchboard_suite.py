"""The switchboard suite: search over all suites, their status, and recent errors.

An in-process server, a child like any other. Each client is answered from its own view: suites that are not in it are
neither found nor mentioned. None of the tools starts a child.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

from msgspec import UNSET, Meta, Struct

from switchboard_mcp import __version__
from switchboard_mcp.config.models import SWITCHBOARD_NAME
from switchboard_mcp.config.sections import PROGRAM_NAME
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.session import is_left_to
from switchboard_mcp.gateway.status import ChildStatus, child_statuses
from switchboard_mcp.gateway.suites.tool_search import (
    BUDGET_TOKENS,
    SubtoolMatch,
    ToolSearch,
)
from switchboard_mcp.hosts.traits import UNKNOWN, HostTraits, traits_of
from switchboard_mcp.inprocess.server_app import (
    ClientIdentity,
    ClientSession,
    Notifier,
    Resource,
    ToolRequest,
    ToolSpec,
)
from switchboard_mcp.observability.recent_errors import RecentError, RecentErrors
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.suites.token_estimate import estimate
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildContext
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite
    from switchboard_mcp.gateway.suites.views import View
    from switchboard_mcp.programs.kept_programs import KeptPrograms

INSTRUCTIONS = (
    "`find` names the subtool for a task with its signature: call it next, there is no need to introspect its suite. "
    "`status` and `recent` show why something does not work."
)
CALL_SUITE = (
    'Call the tool named `suite` with {"action":"call","subtool":…,"args":{…}}, as the signature says.'
)
CALL_TOOL = "Call the tool named `tool` itself, with the arguments of the signature."
NO_SIGNATURE = "Introspect the suite with subtool=NAME for a match without signature."
NOTHING = "Nothing matches these words. Try others, or introspect a suite."
MAX_MATCHES = 20
# Kept programs are few, and come first.
MAX_PROGRAMS = 2
# Share of the budget for the names of suites that could not be searched.
NOT_SEARCHED_SHARE = 0.2


class FindArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `find`."""

    query: Annotated[str, Meta(min_length=1, description="what you want to do, in a few words")]
    limit: Annotated[int, Meta(ge=1, le=MAX_MATCHES, description="how many, at most")] = 5


class StatusArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `status`."""

    suite: Annotated[str, Meta(description="only this suite or child")] = ""


class RecentArgs(Struct, forbid_unknown_fields=True):
    """Arguments of `recent`."""

    limit: Annotated[int, Meta(ge=1, le=50, description="how many, at most")] = 10


class FindMatch(Struct, frozen=True, omit_defaults=True):
    """One subtool, ready to be called: through its suite, or as a direct tool."""

    suite: str = ""
    subtool: str = ""
    tool: str = ""
    signature: str = ""
    summary: str = ""
    also: list[str] = []  # further suites that have the same subtool


class FindResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Result of `find`."""

    matches: list[FindMatch]
    next: str
    not_searched: list[str] = []
    """Suites whose tools are not known yet, as far as the budget allows: introspect one to include it."""
    not_searched_total: int = 0
    """Number of these suites, if not all are named."""


class StatusResult(Struct, frozen=True):
    """Result of `status`."""

    version: str
    children: list[ChildStatus]


class Error(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One error in the result of `recent`."""

    seconds_ago: int
    code: str
    message: str
    child: str = ""
    subtool: str = ""
    times: int = 1
    hint: str = ""


class RecentErrorsResult(Struct, frozen=True):
    """Result of `recent`."""

    errors: list[Error]


class SwitchboardServer:
    """Serves the tools of the switchboard suite. Implements `ServerApp`."""

    name = SWITCHBOARD_NAME
    instructions = INSTRUCTIONS
    resources: Sequence[Resource] = ()
    gateway: Gateway  # set later: the gateway has this server as a child

    def __init__(self, recent: RecentErrors) -> None:
        self.recent = recent
        self.kept: KeptPrograms | None = None  # the kept programs, if programs are enabled
        self._indexes: WeakKeyDictionary[View, ToolSearch] = WeakKeyDictionary()

    @classmethod
    def attach(cls, context: ChildContext) -> None:
        """Add a server to the built-in ones, if there is none yet."""
        if not isinstance(context.builtin_apps.get(SWITCHBOARD_NAME), cls):
            server = cls(RecentErrors(context.loop.time))
            context.recent_errors = server.recent
            context.builtin_apps = {**context.builtin_apps, SWITCHBOARD_NAME: server}

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools of the suite."""
        return TOOLS

    async def open_session(self, notifier: Notifier, client: ClientIdentity) -> SwitchboardSession:
        """Open the session of a client."""
        return SwitchboardSession(self, client)

    def search_index(self, view: View) -> ToolSearch:
        """Return the search index over one view."""
        index = self._indexes.get(view)
        if index is None:
            index = self._indexes[view] = ToolSearch()
        return index


class SwitchboardSession(ClientSession):
    """The session of one client."""

    def __init__(self, server: SwitchboardServer, client: ClientIdentity) -> None:
        self.server = server
        self.principal = client.principal
        self.viewer = client.viewer or client.principal
        self._owner = client.owner

    @property
    def view(self) -> View:
        """The view of this client."""
        return self.server.gateway.view_of(self.viewer)

    def is_own(self, owner: object) -> bool:
        """Return True if calls and processes of an owner are those of this client."""
        return owner == self._owner or is_left_to(owner, self.principal)

    def host(self) -> HostTraits:
        """Return what is known of the client's program; `UNKNOWN` if clients with the same view use several."""
        viewers = (
            session
            for session in self.server.gateway.sessions
            if (session.viewer or session.principal) == self.viewer
        )
        traits = {traits_of(session.client, session.client_version) for session in viewers}
        return traits.pop() if len(traits) == 1 else UNKNOWN


async def find(session: SwitchboardSession, args: FindArgs, request: ToolRequest) -> bytes:
    """Return the matching subtools, best first, as JSON text within the token budget of introspect."""
    view = session.view
    suites = _other_suites(view)
    budget = min((suite.introspection.budget_tokens for suite in view.suites.values()), default=BUDGET_TOKENS)
    unknown = [name for suite in suites if suite.child.snapshot is None for name in suite.listed_names()]
    named = _within(unknown, int(budget * NOT_SEARCHED_SHARE))
    room = budget - estimate(jsonrpc.encode(named)) - estimate(CALL_SUITE)
    index = session.server.search_index(view)
    matches = await index.refresh_and_find(
        work_thread.WorkQueue(session), suites, args.query, args.limit, room
    )
    listed = view.tool_list.direct(host=session.host())
    direct_names = {(resolved.suite.name, resolved.name): name for name, resolved in listed.items()}
    hits = [
        _to_find_match(match, direct_names.get((match.suite, match.subtool), ""), view) for match in matches
    ]
    hits = [*await _kept_programs(session, args.query), *hits]
    next_steps = [
        CALL_SUITE if any(hit.suite for hit in hits) else "",
        CALL_TOOL if any(h.tool for h in hits) else "",
        NO_SIGNATURE if any(not hit.signature for hit in hits) else "",
    ]
    return jsonrpc.encode(
        FindResult(
            hits,
            " ".join(filter(None, next_steps)) or NOTHING,
            named,
            len(unknown) if len(named) < len(unknown) else 0,
        )
    )


async def _kept_programs(session: SwitchboardSession, query: str) -> list[FindMatch]:
    """Return the kept programs that match, if the client may run them."""
    kept, suite = session.server.kept, session.view.suite_of(PROGRAM_NAME)
    if kept is None or suite is None or not suite.access.permits("run"):
        return []
    programs = await work_thread.run(work_thread.WorkQueue(session), partial(kept.find, query, MAX_PROGRAMS))
    return [
        FindMatch(suite.name, "run", signature=f'run(name="{program.name}")', summary=program.description)
        for program in programs
    ]


def _within(names: list[str], tokens: int) -> list[str]:
    """Return the first names, up to a number of tokens."""
    while names and estimate(jsonrpc.encode(names)) > tokens:
        names = names[: len(names) * 3 // 4]
    return names


def _to_find_match(match: SubtoolMatch, tool: str, view: View) -> FindMatch:
    if tool:
        return FindMatch(tool=tool, signature=match.signature, summary=match.summary)
    suite = view.suites.get(match.suite)
    return FindMatch(
        suite.suite_for(match.subtool) if suite is not None else match.suite,
        match.subtool,
        signature=match.signature,
        summary=match.summary,
        also=match.also,
    )


async def status(
    session: SwitchboardSession, args: StatusArgs, request: ToolRequest
) -> StatusResult | Failure:
    """Return the status of the children."""
    suites = _other_suites(session.view)
    if args.suite:
        selected = [suite for suite in suites if args.suite in (suite.name, suite.source)]
        if not selected:
            near = nearest(args.suite, [suite.name for suite in suites])
            return failure("unknown_tool", f"There is no suite '{args.suite}'.", nearest=near)
        suites = selected
    return StatusResult(__version__, child_statuses(suites, session.is_own))


async def recent(session: SwitchboardSession, args: RecentArgs, request: ToolRequest) -> RecentErrorsResult:
    """Return the recent errors, latest first."""
    server, suites = session.server, {suite.source: suite for suite in session.view.suites.values()}
    now = server.recent.now()
    visible = [error for error in server.recent.seen_by(session.is_own) if _is_visible(error, suites)]
    return RecentErrorsResult([_to_error(error, now) for error in visible[: args.limit]])


def _is_visible(error: RecentError, suites: dict[str, ChildSuite]) -> bool:
    child, subtool = error.problem.child, error.problem.subtool
    if child is UNSET or child not in suites:
        return False
    return subtool is UNSET or suites[child].access.permits(subtool)


def _to_error(error: RecentError, now: float) -> Error:
    problem = error.problem
    return Error(
        seconds_ago=max(0, round(now - error.at)),
        code=problem.code,
        message=problem.message,
        child=problem.child or "",
        subtool=problem.subtool or "",
        times=error.times,
        hint=problem.hint or "",
    )


def _other_suites(view: View) -> list[ChildSuite]:
    """Return all visible suites except this one."""
    return [suite for suite in view.suites.values() if suite.source != SWITCHBOARD_NAME]


TOOLS = (
    ToolSpec(
        name="find",
        description="Find the subtools for a task in all suites: names and signatures, ready to call.",
        args_type=FindArgs,
        handler=find,
        read_only=True,
    ),
    ToolSpec(
        name="status",
        description="Show each suite's server: known, started, healthy, calls, tokens saved.",
        args_type=StatusArgs,
        handler=status,
        read_only=True,
    ),
    ToolSpec(
        name="recent",
        description="Show recent errors, with what to do about them.",
        args_type=RecentArgs,
        handler=recent,
        read_only=True,
    ),
)
