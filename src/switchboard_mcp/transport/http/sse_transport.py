"""Transport over HTTP+SSE, the protocol of 2024-11-05.

One GET stream carries everything the server sends while the transport is open; its first event names the URL to which
messages are posted. That URL must be of the same origin, or the server could direct our messages to anyone.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Unpack
from urllib.parse import urljoin, urlsplit

import httpx2
from msgspec import UNSET

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.framing import Oversized
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.sse import EventStream, ServerSentEvent
from switchboard_mcp.transport.http.client import HttpClient, body_chunks, content_type, drain
from switchboard_mcp.transport.http.event_pieces import read_events
from switchboard_mcp.transport.http.http_errors import (
    NOT_FOUND,
    find_rpc_error,
    read_error_body,
    response_failure,
)
from switchboard_mcp.transport.http.remote_base import (
    HttpTransport,
    QueuedMessage,
    RemoteServer,
    StartTask,
    TransportOptions,
    redacted_url,
)

DEFAULT_PORTS = {"http": 80, "https": 443}


class SseTransport(HttpTransport):
    """Transport over one event stream and a POST per message."""

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        super().__init__(HttpClient(server, options.get("auth")), server, start_task, **options)
        self._endpoint = ""
        self._endpoint_known = asyncio.Event()  # set once the endpoint is known

    def open(self) -> None:
        """Open the stream."""
        self.spawn(self._listen())

    # --- receiving ---------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            await self._receive_events()
            problem = self.server.failure("child_crashed", "has closed its event stream")
        except SwitchboardError as error:
            problem = error.failure
        self.connection_lost(problem)

    async def _receive_events(self) -> None:
        """Deliver messages until the stream ends. Raises if it cannot be opened."""
        events = EventStream(self.limit)
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        async with self.client.stream("GET", self.server.url, headers) as response:
            if not response.is_success or content_type(response) != "text/event-stream":
                raise SwitchboardError(
                    response_failure(self.server, response, await read_error_body(response))
                )
            async with aclosing(body_chunks(response)) as chunks:
                async for event in read_events(events, chunks, self.limit):
                    await self._on_event(event, response)

    async def _on_event(self, event: ServerSentEvent | Oversized, response: httpx2.Response) -> None:
        if isinstance(event, Oversized):
            await self.deliver_oversized(event)
        elif event.name == "endpoint" and not self._endpoint_known.is_set():
            self._endpoint = self._resolve_endpoint(str(response.url), event.data.decode("utf-8", "replace"))
            self._endpoint_known.set()
        elif event.name == "message" and event.data:
            await self.deliver(event.data)

    def _resolve_endpoint(self, base_url: str, endpoint: str) -> str:
        """Return the URL to post to. Raises if it is of another origin."""
        try:
            target = urljoin(base_url, endpoint.strip())
            same = _origin(target) == _origin(base_url)
        except ValueError:
            target, same = "", False
        if not same:
            where = redacted_url(target) if target else "an invalid URL"
            raise SwitchboardError(
                self.server.failure("child_protocol", f"names an endpoint of another origin: {where}")
            )
        return target

    # --- sending ----------------------------------------------------------------------------------------------------

    def send_request(self, message: RpcMessage, queued: QueuedMessage) -> None:
        """Post a request; the response comes over the stream."""
        assert message.id is not UNSET
        self.spawn(self._request(bytes(message.id), queued))

    async def _request(self, id: bytes, queued: QueuedMessage) -> None:
        try:
            await self.initialized.wait()
            await self.post(queued, id)
        except SwitchboardError as problem:
            self.fail_request(id, problem.failure)
            self.on_post_failed(problem.failure)
        except Exception as surprise:  # noqa: BLE001 - the caller waits for an answer, whatever went wrong
            self.on_error(surprise)
            self.fail_request(id, self.server.failure("internal", "could not be called"))
        finally:
            queued.mark_sent()

    async def post(self, queued: QueuedMessage, id: bytes = b"null") -> None:
        """Post a message to the URL that the server has named."""
        await self._endpoint_known.wait()
        headers = {"content-type": "application/json"}
        async with self.client.stream("POST", self._endpoint, headers, queued) as response:
            if response.is_success:
                async with aclosing(body_chunks(response)) as chunks:
                    await drain(chunks)
                return
            body = await read_error_body(response)
            if response.status_code == NOT_FOUND:
                raise SwitchboardError(
                    self.server.failure("child_session_lost", "no longer knows our session")
                )
            error = find_rpc_error(body, id) if id != b"null" else None
            if error is None:
                raise SwitchboardError(response_failure(self.server, response, body))
            await self.deliver(jsonrpc.error_body(id, error))

    def on_post_failed(self, problem: Failure) -> None:
        """Report it, and end the transport if the session is gone."""
        super().on_post_failed(problem)
        if problem.code == "child_session_lost":  # other requests may have been carried out
            self.connection_lost(self.server.failure("child_crashed", "has lost our session"))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


dial = SseTransport
