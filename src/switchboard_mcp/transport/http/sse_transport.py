"""A link over HTTP+SSE, the way of 2024-11-05.

One GET brings everything the server says, for as long as the link lives; its first event names the address to which
messages are posted. That must be of the same origin, or anybody could have our messages sent to them.
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
from switchboard_mcp.transport.http.client import content_type, drain
from switchboard_mcp.transport.http.http_errors import NOT_FOUND, refusal, refusal_body, rpc_error_in
from switchboard_mcp.transport.http.ordered import OrderedHttpTransport
from switchboard_mcp.transport.http.remote_base import (
    QueuedMessage,
    RemoteServer,
    StartTask,
    TransportOptions,
    redacted_url,
)

DEFAULT_PORTS = {"http": 80, "https": 443}


class SseTransport(OrderedHttpTransport):
    """See the module."""

    def __init__(
        self, server: RemoteServer, start_task: StartTask, **options: Unpack[TransportOptions]
    ) -> None:
        super().__init__(server, start_task, **options)
        self._endpoint = ""
        self._named = asyncio.Event()  # the endpoint is known

    def begin(self) -> None:
        """Open the stream."""
        self.spawn(self._listen())

    # --- what comes --------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            await self._hear()
            problem = self.server.failure("child_crashed", "has closed its event stream")
        except SwitchboardError as trouble:
            problem = trouble.failure
        self.finish(problem)

    async def _hear(self) -> None:
        """Deliver what comes until the stream ends. Raises where there is none."""
        events = EventStream(self.limit)
        wanted = {"accept": "text/event-stream", "cache-control": "no-store"}
        async with self.client.stream("GET", self.server.url, wanted) as response:
            if not response.is_success or content_type(response) != "text/event-stream":
                raise SwitchboardError(refusal(self.server, response, await refusal_body(response)))
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    for event in events.feed(chunk):
                        await self._take(event, response)

    async def _take(self, event: ServerSentEvent | Oversized, response: httpx2.Response) -> None:
        if isinstance(event, Oversized):
            await self.deliver_oversized(event)
        elif event.name == "endpoint" and not self._named.is_set():
            self._endpoint = self._same_origin(str(response.url), event.data.decode("utf-8", "replace"))
            self._named.set()
        elif event.name == "message" and event.data:
            await self.deliver(event.data)

    def _same_origin(self, here: str, named: str) -> str:
        """The address to post to. Raises where it leads to somebody else."""
        try:
            there = urljoin(here, named.strip())
            same = _origin(there) == _origin(here)
        except ValueError:
            there, same = "", False
        if not same:
            where = redacted_url(there) if there else "an address that cannot be read"
            raise SwitchboardError(
                self.server.failure("child_protocol", f"wants messages sent to {where}, which is not its own")
            )
        return there

    # --- what goes ---------------------------------------------------------------------------------------------------

    def request(self, message: RpcMessage, parcel: QueuedMessage) -> None:
        """A POST; the answer comes over the stream."""
        assert message.id is not UNSET
        self.spawn(self._request(bytes(message.id), parcel))

    async def _request(self, id: bytes, parcel: QueuedMessage) -> None:
        try:
            await self.introduced.wait()
            await self.post(parcel, id)
        except SwitchboardError as problem:
            self.fail_request(id, problem.failure)
            self.not_taken(problem.failure)
        except Exception as surprise:  # noqa: BLE001 - the caller waits for an answer, whatever went wrong
            self.on_error(surprise)
            self.fail_request(id, self.server.failure("internal", "could not be asked"))
        finally:
            parcel.taken()

    async def post(self, parcel: QueuedMessage, id: bytes = b"null") -> None:
        """A POST to the address that the server has named."""
        await self._named.wait()
        kind = {"content-type": "application/json"}
        async with self.client.stream("POST", self._endpoint, kind, parcel) as response:
            if response.is_success:
                async with aclosing(response.aiter_bytes()) as chunks:
                    await drain(chunks)
                return
            body = await refusal_body(response)
            if response.status_code == NOT_FOUND:
                raise SwitchboardError(
                    self.server.failure("child_session_lost", "does not know our session any more")
                )
            error = rpc_error_in(body, id) if id != b"null" else None
            if error is None:
                raise SwitchboardError(refusal(self.server, response, body))
            await self.deliver(jsonrpc.error_body(id, error))

    def not_taken(self, problem: Failure) -> None:
        """Where the session is gone, so is the link."""
        super().not_taken(problem)
        if problem.code == "child_session_lost":  # whatever else was asked may have been done
            self.finish(self.server.failure("child_crashed", "has lost our session"))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


dial = SseTransport
