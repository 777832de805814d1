"""Calls that a program makes, each on the path of a suite call of the host that runs it.

A call begins at `ChildSuite.begin` with the host's own session, so its view, its profile, the access lists, the gate,
the lock, limits, middleware and records apply as to any other. Three things differ: the result comes back whole, the
records name the run, and the gate does not ask about what the user has approved with the program.
"""

from __future__ import annotations

import os
from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.programs.large_results import MAX_RESULT_BYTES, keep_result
from switchboard_mcp.gateway.suites.suite_tools import PlainParams
from switchboard_mcp.programs.engine import Settled
from switchboard_mcp.programs.result_values import settle_failure, settle_response
from switchboard_mcp.protocol import message_meta
from switchboard_mcp.protocol.message_meta import Meta
from switchboard_mcp.suites.suite_arguments import SuiteCall
from switchboard_mcp.system import work_thread
from switchboard_mcp.transport.rpc import next_id

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.pipeline.calls import PipelineRequest
    from switchboard_mcp.gateway.session import Session

# What a program may call: the suite, by its name, and the subtool.
Subtool = tuple[str, str]
# Members of the `_meta` of the host's own request that its calls carry on.
CARRIED_META = (message_meta.CLIENT, "traceparent", "tracestate", "baggage")


class ProgramRun:
    """One run of a program for a host. Implements `ProgramMark`.

    `manifest` are the subtools that it may call; `approved` those about which the gate need not ask again.
    """

    def __init__(
        self,
        run_id: str,
        gateway: Gateway,
        request: PipelineRequest,
        manifest: frozenset[Subtool],
        approved: frozenset[Subtool],
    ) -> None:
        self.run_id = run_id
        self._gateway = gateway
        self.request = request
        self._sessions: dict[bytes, Session] = {}  # of the open calls
        self._manifest = manifest
        self._approved = approved
        self._meta = _carried(request.meta)
        # Its calls are among those of the host, which cannot guess their ids.
        self._id_prefix = b'"program ' + os.urandom(16).hex().encode() + b" "

    @property
    def session(self) -> Session:
        """The session of the host, or of the task that the run has become."""
        return self.request.session

    def move_call(self, id: bytes, session: Session) -> None:
        """Note that a call of the program now belongs to another session."""
        self._sessions[id] = session

    def is_approved(self, child: str, subtool: str) -> bool:
        """Return True if the user has allowed the program to call the subtool."""
        return (child, subtool) in self._approved

    async def call(self, child: str, subtool: str, arguments: bytes) -> Settled:
        """Call a subtool of the manifest; refuse any other, whatever the interpreter says."""
        if (child, subtool) not in self._manifest:
            message = f"The program was not checked for the subtool '{subtool}' of '{child}'."
            return settle_failure(failure("program_refused", message, child=child, subtool=subtool))
        call = SuiteCall(action="call", subtool=subtool, args=Raw(arguments))
        response = await self.exchange(child, call)
        if response is not None and len(response) > MAX_RESULT_BYTES:
            return keep_result(self.session, child, subtool, response)
        return await _settled(child, response)

    async def send(self, child: str, call: SuiteCall) -> Settled:
        """Send a call to the suite of a child in the host's view, and return its result."""
        return await _settled(child, await self.exchange(child, call))

    async def exchange(self, child: str, call: SuiteCall) -> bytes | None:
        """Send a call and return the JSON-RPC response; None if the host does not see the child (any more)."""
        session = self.session
        suite = self._gateway.view_of(session.viewer).suite_of(child)
        if suite is None or session.closed:
            return None
        id = self._id_prefix + next_id() + b'"'
        channel = ProgramChannel(self.request)
        session.program_calls[id] = self
        self._sessions[id] = session
        try:
            suite.begin(session, channel, id, PlainParams(suite.name, call, self._meta))
            return await channel.response
        except CancelledError:
            self._sessions[id].cancel(Raw(id), "The program was cancelled.")
            raise
        finally:
            self._sessions.pop(id).program_calls.pop(id, None)


class ProgramChannel:
    """Carries the answer of a call to its program, and requests of children to the program's host."""

    def __init__(self, run: PipelineRequest) -> None:
        self._run = run
        self.response: Future[bytes] = get_running_loop().create_future()

    @property
    def backlog(self) -> int:
        """Bytes that the host has not taken."""
        return self._run.channel.backlog

    def send(self, message: bytes) -> None:
        """Send a request of a child, or a notification, to the host."""
        self._run.channel.send(message)

    def answer(self, message: bytes) -> None:
        """Settle the call."""
        if not self.response.done():
            self.response.set_result(message)


async def _settled(child: str, response: bytes | None) -> Settled:
    if response is None:
        message = f"There is no suite of '{child}' any more."
        return settle_failure(failure("unknown_tool", message, child=child))
    if len(response) <= work_thread.LOOP_BYTES:
        return settle_response(response)
    return await work_thread.run(work_thread.OWN, partial(settle_response, response))


def _carried(meta: Meta | UnsetType) -> Meta | UnsetType:
    """Return the `_meta` about the host for the calls of a program, which are those of a legacy host."""
    if meta is UNSET or not message_meta.is_stateless(meta):
        return UNSET
    carried: Mapping[str, Raw] = {name: meta[name] for name in CARRIED_META if name in meta}
    return dict(carried) or UNSET
