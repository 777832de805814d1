"""Serves a host on the pipes that its own process has handed over to the broker."""

from __future__ import annotations

from switchboard_mcp.errors import failure, rpc_error
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import HostIdentity, Session
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.server.stdio import StdioServer
from switchboard_mcp.transport.flow_control import FlowControl
from switchboard_mcp.transport.session_journal import (
    MAX_BACKLOG_BYTES,
    Journal,
    OpenRequests,
    open_journaled,
)
from switchboard_mcp.transport.stdio import Cork, PipeTransport

INTERRUPTED = "Switchboard was restarted during this request. It may or may not have been carried out."


class SilentChannel:
    """Discards the responses to requests that have been answered before."""

    backlog = 0

    def send(self, message: bytes) -> None:
        """Discard a message."""

    answer = send


class HandedOverHost(StdioServer):
    """Serves one host until it closes stdin and has received its responses, or its process has gone."""

    exit_code = 0

    def __init__(
        self,
        gateway: Gateway,
        cork: Cork,
        flow_control: FlowControl,
        identity: HostIdentity,
        descriptors: tuple[int, int],
        journal: Journal,
        log: Log,
    ) -> None:
        self._descriptors = descriptors
        self._journal = journal
        self._is_continued = False
        super().__init__(gateway, cork, flow_control, identity, log)
        self._is_continued = True

    def _open(self, cork: Cork) -> PipeTransport:
        return open_journaled(
            self._loop,
            self._descriptors,
            cork,
            self._journal,
            on_congestion=self._congested,
            on_broken=self._broken,
            on_error=self._internal_error,
            open_requests=self._open_requests,
        )

    def _open_requests(self) -> OpenRequests | None:
        """Return what will be answered; None while the gateway does not know all requests of an earlier process."""
        if not self._is_continued:
            return None
        session = self._session
        established = (
            session.initialized,
            session.version,
            session.capabilities,
            session.log_level,
            tuple(session.subscribed),
        )
        return OpenRequests({**session.in_flight, **session.listens}, established)

    def _attach(self) -> Session:
        prepare = None if self._journal.is_new else self._continue
        return self._gateway.attach(self._link, self._closed, self._identity, prepare)

    def _continue(self, session: Session) -> None:
        """Continue the session of an earlier process: repeat what established it, and answer the open requests."""
        link = self._link
        continued = self._journal.continued()
        link.restore(continued.unfinished, continued.unsent, uses_headers=continued.uses_headers)
        for line in continued.record.kept:
            self._gateway.receive(session, SilentChannel(), line)
        for request in continued.record.open:
            if request.repeatable:
                self._gateway.receive(session, link, request.line)
            else:
                link.answer(jsonrpc.error_body(request.id, rpc_error(failure("interrupted", INTERRUPTED))))

    def _abandon_hung_starts(self, ended_at: float) -> None:
        """Abandon starts that only this host waits for. The next host may start the child again."""
        if self._gateway.sessions == [self._session]:
            self._gateway.abandon_hung_starts(ended_at, for_good=False)

    def _broken(self) -> None:
        """End the session of a host that has closed its end, or that leaves more unread than fits in memory."""
        if self._link.has_given_up and not self._ended.is_set():
            self.exit_code = 1
            self._log.error(
                "host.unread", client=self.client, limit=MAX_BACKLOG_BYTES, note="the session ends"
            )
        self._ended.set()

    @property
    def session(self) -> Session:
        """The session of the host."""
        return self._session

    @property
    def is_busy(self) -> bool:
        """True while the host waits for responses, or has not read them."""
        return bool(self._session.in_flight or self._link.write_buffer_size)

    def pause(self) -> None:
        """Read no further requests. They stay in the pipe for the process that continues the session."""
        self._link.pause()

    def host_has_gone(self) -> None:
        """End the session without waiting for anything."""
        self._gateway.close(self._session)
        self._ended.set()

    def abandon(self) -> None:
        """Stop serving without an answer to open requests: the next process answers them."""
        self._link.pause()
        self._gateway.close(self._session)

    def close(self) -> None:
        """Release the descriptors and the journal."""
        self._link.close()
        self._journal.close()
