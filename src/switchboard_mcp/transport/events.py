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

from switchboard_mcp.core import jsonrpc
from switchboard_mcp.core.framing import Oversized
from switchboard_mcp.core.jsonrpc import Malformed
from switchboard_mcp.core.sse import Event, EventStream
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.transport.outbox import Outbox
from switchboard_mcp.transport.remote import Options, Parcel, RemoteLink, Server, StartTask, shown_url
from switchboard_mcp.transport.replies import NOT_FOUND, refusal, refusal_body, rpc_error_in
from switchboard_mcp.transport.webclient import WebClient, content_type, drain

DEFAULT_PORTS = {"http": 80, "https": 443}


class EventsLink(RemoteLink):
    """See the module."""

    scoped = True

    def __init__(self, server: Server, start_task: StartTask, **options: Unpack[Options]) -> None:
        super().__init__(server, start_task, **options)
        self._client = WebClient(server, options.get("auth"))
        self._endpoint = ""
        self._named = asyncio.Event()  # the endpoint is known
        self._introduced = asyncio.Event()
        self._introduced.set()
        self._outbox = Outbox(self, self._post, self._not_taken)
        self._leaving = False

    def begin(self) -> None:
        """Open the stream."""
        self.spawn(self._listen())

    def send(self, message: bytes) -> None:
        """Send one message: a request at once, anything else after what was sent before."""
        if self.over or self._leaving:
            return
        envelope = jsonrpc.parse(message)
        if isinstance(envelope, Malformed):
            return
        parcel = Parcel(self, message)
        if envelope.method is not UNSET and envelope.id is not UNSET:
            self.spawn(self._request(bytes(envelope.id), parcel))
        elif envelope.method == "notifications/initialized":
            self._introduced.clear()
            self._outbox.put(parcel, self._introduced.set)
        else:
            self._outbox.put(parcel)

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
        async with self._client.stream("GET", self.server.url, wanted) as response:
            if not response.is_success or content_type(response) != "text/event-stream":
                raise SwitchboardError(refusal(self.server, response, await refusal_body(response)))
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    for event in events.feed(chunk):
                        await self._take(event, response)

    async def _take(self, event: Event | Oversized, response: httpx2.Response) -> None:
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
            where = shown_url(there) if there else "an address that cannot be read"
            raise SwitchboardError(
                self.server.failure("child_protocol", f"wants messages sent to {where}, which is not its own")
            )
        return there

    # --- what goes ---------------------------------------------------------------------------------------------------

    async def _request(self, id: bytes, parcel: Parcel) -> None:
        try:
            await self._introduced.wait()
            await self._post(parcel, id)
        except SwitchboardError as problem:
            self.lose(id, problem.failure)
            self._not_taken(problem.failure)
        except Exception as surprise:  # noqa: BLE001 - the caller waits for an answer, whatever went wrong
            self.on_error(surprise)
            self.lose(id, self.server.failure("internal", "could not be asked"))
        finally:
            parcel.taken()

    async def _post(self, parcel: Parcel, id: bytes = b"null") -> None:
        await self._named.wait()
        kind = {"content-type": "application/json"}
        async with self._client.stream("POST", self._endpoint, kind, parcel) as response:
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

    def _not_taken(self, problem: Failure) -> None:
        self.note(problem.message)
        if problem.code == "child_session_lost":  # whatever else was asked may have been done
            self.finish(self.server.failure("child_crashed", "has lost our session"))

    def close_sending(self) -> None:
        """Be done when what was sent before has gone: closing the stream tells the server."""
        if not self._leaving and not self.over:
            self._leaving = True
            self.spawn(self._leave())

    async def _leave(self) -> None:
        await self._outbox.until_empty()
        self.farewell_done.set()

    async def release(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


dial = EventsLink
