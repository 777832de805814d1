"""Moves the open calls of a program to another session, if that of its host ends before the program does.

A stateless host over HTTP has a session for each request. While the request that runs a program waits for the input of
its host, the run and its calls belong to a session of their own; the next request of the host takes the run over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from switchboard_mcp.gateway.session import Session

if TYPE_CHECKING:
    from switchboard_mcp.gateway.request import HostRequest


class HeldSession(Session):
    """The session of a request that waits for its host, between two sessions of that host."""

    def __init__(self, before: Session) -> None:
        super().__init__(
            _NoChannel(),
            before.broker,
            before.notification_flow,
            before.tools,
            before.identity,
            ephemeral=True,
        )
        self.profile, self.client, self.client_version = before.profile, before.client, before.client_version
        self.capabilities, self.log_level = before.capabilities, before.log_level
        self.initialized = before.initialized
        self._owner = before.process_owner

    @property
    def process_owner(self) -> object:
        """The owner of child processes that are not shared: that of the session before."""
        return self._owner


class _NoChannel:
    """Drops messages: no request of the host is open."""

    backlog = 0

    def send(self, message: bytes) -> None:
        """Drop a message."""

    def answer(self, message: bytes) -> None:
        """Drop an answer."""


def asking_request(request: HostRequest) -> HostRequest:
    """Return the request of the host that a question goes out with: of a program's call, that which runs it."""
    program = request.session.program_calls.get(request.host_id)
    return request if program is None else cast("HostRequest", program.request)


def hold(request: HostRequest) -> None:
    """Move a request and the calls of its program to a session that stays open, unless its own does."""
    before = request.session
    if before.ephemeral and not isinstance(before, HeldSession):
        session = HeldSession(before)
        move_program_calls(request, session)
        session.in_flight[request.host_id] = before.in_flight.pop(request.host_id)
        request.session = session


def move_program_calls(request: HostRequest, session: Session) -> None:
    """Move the open calls of the program that a request runs."""
    before = request.session
    for id, program in list(before.program_calls.items()):
        if program.request is request:
            session.program_calls[id] = before.program_calls.pop(id)
            program.move_call(id, session)
            call = before.in_flight.pop(id, None)
            if call is not None:
                session.in_flight[id] = call
                cast("HostRequest", call).session = session
