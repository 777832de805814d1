"""The module `switchboard` of programs: search over the suites, the description of a subtool, parts of large results.

None of them changes anything, so they are not part of a manifest. They see what the host of the program sees.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.json import encode

from switchboard_mcp.config.models import SWITCHBOARD_NAME
from switchboard_mcp.config.sections import PROGRAM_NAME
from switchboard_mcp.gateway.programs.large_results import selected_part
from switchboard_mcp.gateway.results.handles import open_store
from switchboard_mcp.gateway.suites.tool_search import BUDGET_TOKENS, ToolSearch
from switchboard_mcp.programs.engine import Module, Settled
from switchboard_mcp.suites.results.select import SelectError
from switchboard_mcp.suites.suite_arguments import SuiteCall
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.programs.program_calls import ProgramRun

OWN_MODULE = "switchboard"
OWN_FUNCTIONS = ("find", "describe", "select")
OWN_STUB = """\
import builtins as _b
import typing as _t

class Match(_t.TypedDict):
    suite: _b.str
    subtool: _b.str
    signature: _b.str
    summary: _b.str

async def find(*, query: _b.str, limit: _b.int = ...) -> _b.list[Match]: ...
async def describe(*, suite: _b.str, subtool: _b.str = ...) -> _t.Any: ...
async def select(*, handle: _b.str, query: _b.str) -> _t.Any: ...
"""
OWN = Module(OWN_MODULE, {name: name for name in OWN_FUNCTIONS}, OWN_STUB)
MAX_MATCHES = 20


class _FindArgs(Struct, forbid_unknown_fields=True):
    query: str
    limit: int = 5


class _DescribeArgs(Struct, forbid_unknown_fields=True):
    suite: str
    subtool: str = ""


class _SelectArgs(Struct, forbid_unknown_fields=True):
    handle: str
    query: str


class OwnFunctions:
    """The functions of one run."""

    def __init__(self, gateway: Gateway, run: ProgramRun) -> None:
        self._gateway = gateway
        self._run = run

    async def call(self, module: str, function: str, arguments: bytes) -> Settled:
        """Call a function of the module."""
        try:
            if module == OWN_MODULE and function == "find":
                return await self._find(msgspec.json.decode(arguments, type=_FindArgs))
            if module == OWN_MODULE and function == "describe":
                return await self._describe(msgspec.json.decode(arguments, type=_DescribeArgs))
            if module == OWN_MODULE and function == "select":
                return await self._select(msgspec.json.decode(arguments, type=_SelectArgs))
        except msgspec.DecodeError as problem:
            return Settled(raised="TypeError", message=f"switchboard.{function}: {problem}")
        return Settled(raised="NameError", message=f"{module}.{function} is not defined")

    async def _find(self, args: _FindArgs) -> Settled:
        view = self._gateway.view_of(self._run.session.viewer)
        hidden = (PROGRAM_NAME, SWITCHBOARD_NAME)
        suites = [suite for suite in view.suites.values() if suite.source not in hidden]
        limit = min(max(args.limit, 1), MAX_MATCHES)
        results = await ToolSearch().refresh_and_find(
            self._run.session, suites, args.query, limit, BUDGET_TOKENS
        )
        matches = [
            {
                "suite": match.suite,
                "subtool": match.subtool,
                "signature": match.signature,
                "summary": match.summary,
            }
            for match in results
        ]
        return Settled(value=encode(matches))

    async def _describe(self, args: _DescribeArgs) -> Settled:
        view = self._gateway.view_of(self._run.session.viewer)
        suite = view.suites.get(args.suite) or view.suite_of(args.suite)
        if suite is None:
            return Settled(raised="LookupError", message=f"There is no suite '{args.suite[:100]}'.")
        return await self._run.send(suite.source, SuiteCall(action="introspect", subtool=args.subtool))

    async def _select(self, args: _SelectArgs) -> Settled:
        session = self._run.session
        entry = open_store(session.broker).get(args.handle, session)
        if entry is None:
            return Settled(raised="LookupError", message="The handle is unknown or expired.")
        try:
            return await work_thread.run(session, partial(selected_part, entry, args.query))
        except SelectError as problem:
            return Settled(raised="ValueError", message=str(problem))
        except ValueError:
            return Settled(raised="ValueError", message="The result is not JSON.")
