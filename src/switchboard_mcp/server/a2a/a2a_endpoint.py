"""The A2A endpoint: agent cards, and JSON-RPC with server-sent events, for the clients of the HTTP server.

A client acts as the agent that its token names; with the server's own token, as `a2a-client`. All it can do is what
that agent can do by mail: each method is decided as a call of the mail tool that it stands for (`CALLS`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.config.agent_names import RESERVED_FOR, agent_name
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.pipeline.admission import refused_call
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.conversations import recall, threads
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.server.a2a import a2a_card, a2a_messages, a2a_tasks
from switchboard_mcp.server.a2a.a2a_messages import A2aError, ListParams, SendParams, TaskParams
from switchboard_mcp.server.a2a.a2a_tasks import A2aTask
from switchboard_mcp.server.http import event_stream
from switchboard_mcp.server.http.event_stream import EventStream
from switchboard_mcp.server.http.exchange import HttpExchange

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "/a2a"
CARD = "/.well-known/agent-card.json"
# The agent of clients that use the server's own token.
ANONYMOUS = "a2a-client"
# A task may take days; a blocking request is answered before proxies give up on it.
WAIT_S = 50.0
# A claim by another process makes no event in the mailboxes that are watched here.
LOOK_AGAIN_S = 1.0
VERSION = b"a2a-version"
PUSH = "PushNotificationConfig"
MAIL, ORIGIN = "mail", "a2a"
# The mail tools that cards, tasks, their list, messages and cancellations stand for.
LIST_AGENTS, READ, LIST, SEND, RECALL = (
    "list_agents",
    "read_thread",
    "get_receipts",
    "send_message",
    "recall_message",
)


class RpcRequest(Struct, kw_only=True):
    """A JSON-RPC request."""

    method: str
    id: str | int | None = None
    params: Raw = Raw(b"{}")


Handler = Callable[["A2aClient", Raw], Awaitable[dict[str, object]]]


class A2aEndpoint:
    """Serves A2A for one workspace."""

    def __init__(self, mail: MailServer, gateway: Gateway, max_body: int) -> None:
        self._mail = mail
        self._gateway = gateway
        self._max_body = max_body

    async def serve(self, exchange: HttpExchange) -> None:
        """Serve one request of an authorized client."""
        path = exchange.path
        if path.endswith(CARD):
            await self._card(exchange, path.removesuffix(CARD))
            return
        if exchange.method != "POST":
            await exchange.refuse(405, "Use POST.", (b"allow", b"POST"))
            return
        body = await exchange.body(self._max_body)
        if body is None:
            return
        try:
            request = msgspec.json.decode(body, type=RpcRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            await exchange.reply(200, jsonrpc.error(b"null", -32700, f"Not a JSON-RPC request: {problem}"))
            return
        id = msgspec.json.encode(request.id)
        try:
            version = exchange.headers.get(VERSION, b"").decode("latin-1")
            if version and version.partition(".")[0] != a2a_card.PROTOCOL_VERSION.partition(".")[0]:
                text = f"Version {version[:20]} is not supported. Use {a2a_card.PROTOCOL_VERSION}."
                raise A2aError(a2a_messages.WRONG_VERSION, text)
            await self._answer(exchange, request, id)
        except A2aError as problem:
            await exchange.reply(200, jsonrpc.error(id, problem.code, problem.message))
        except SwitchboardError as problem:
            error = a2a_messages.to_error(problem.failure)
            await exchange.reply(200, jsonrpc.error(id, error.code, error.message))

    async def _answer(self, exchange: HttpExchange, request: RpcRequest, id: bytes) -> None:
        recipient = exchange.path.removeprefix(PATH).strip("/")
        sender = await self._sender(exchange.principal)
        client = A2aClient(self._mail, sender, recipient, partial(self._require, exchange.principal))
        stream = STREAMS.get(request.method)
        if stream is not None:
            task = await stream(client, request.params)
            await _send_events(exchange, id, client, task)
            return
        handler = METHODS.get(request.method)
        if handler is None:
            code = a2a_messages.NO_PUSH if PUSH in request.method else -32601
            if request.method == "GetExtendedAgentCard":
                code = a2a_messages.NO_EXTENDED_CARD
            raise A2aError(code, f"Method '{request.method[:100]}' is not supported here.")
        result = await handler(client, request.params)
        await exchange.reply(200, jsonrpc.result(id, msgspec.json.encode(result)))

    async def _sender(self, principal: str) -> str:
        """Return the agent that the client is, registered so that it can receive answers."""
        name = agent_name(principal) if principal else ANONYMOUS
        if name is None:
            message = f"The name of this token, '{principal}', is not a valid name of an agent."
            raise refused(
                "mail_identity", message, hint="Rename it in http.tokens: letters, digits, - and _."
            )
        store = await self._mail.store()
        if name not in await store.agents():
            await store.register(name)
            await store.update(agent_registry.register(name, interface="a2a"))
        return name

    async def _require(self, principal: str, subtool: str, arguments: object) -> None:
        """Raise unless the holder of a token may call this mail tool."""
        problem = await refused_call(self._gateway, principal, MAIL, subtool, arguments, ORIGIN)
        if problem is not None:
            raise SwitchboardError(problem)

    async def _card(self, exchange: HttpExchange, path: str) -> None:
        if exchange.method not in ("GET", "HEAD"):
            await exchange.refuse(405, "Use GET.", (b"allow", b"GET"))
            return
        agents = agent_registry.agents(await (await self._mail.store()).state())
        host = exchange.headers.get(b"host", b"").decode("latin-1")
        name = path.removeprefix(PATH).strip("/")
        url = f"http://{host}{PATH}" + (f"/{name}" if name else "")
        if name and (name not in agents or name in RESERVED_FOR):
            await exchange.refuse(404, f"There is no agent '{name[:64]}' here.")
            return
        if not name:
            try:
                await self._require(exchange.principal, LIST_AGENTS, {})
            except SwitchboardError as problem:
                await exchange.refuse(403, problem.failure.message)
                return
        card = a2a_card.agent_card(name, agents[name], url) if name else a2a_card.workspace_card(agents, url)
        await exchange.reply(200, jsonrpc.encode(card))


class A2aClient:
    """One request of a client: the agent it acts as, and the agent it talks to."""

    def __init__(
        self,
        mail: MailServer,
        sender: str,
        recipient: str,
        require: Callable[[str, object], Awaitable[None]],
    ) -> None:
        self._mail = mail
        self._sender = sender
        self._recipient = recipient
        self._require = require

    async def send(self, params: SendParams) -> A2aTask:
        """Send a message: a new task, or more input for one."""
        store, message = await self._mail.store(), params.message
        draft = a2a_messages.to_draft(message)
        if message.task_id:
            task = await self._add_input(store, message.task_id, draft)
        else:
            if message.context_id:
                draft = await self._in_context(store, draft, message.context_id)
            recipient = self._recipient or await self._named(
                store, a2a_messages.text_of(message, "recipient")
            )
            await self._require(SEND, a2a_messages.send_arguments(draft, recipient))
            sent = await store.send(draft, sender=self._sender, recipient=recipient)
            task = await self.task(sent.id)
        return task

    async def _in_context(self, store: MessageStore, draft: Any, context: str) -> Any:
        answered = msgspec.structs.replace(draft, reply_to=context)
        joined = await threads.join(store, self._sender, answered)
        if joined.thread is None:
            raise A2aError(a2a_messages.INVALID_PARAMS, f"There is no context '{context[:100]}'.")
        return msgspec.structs.replace(joined, reply_to=None)

    async def _add_input(self, store: MessageStore, id: str, draft: Any) -> A2aTask:
        task = await self.task(id)
        if task.state in a2a_tasks.FINAL:
            text = f"Task '{id[:100]}' has ended. Send the message without a task id."
            raise A2aError(a2a_messages.UNSUPPORTED, text)
        more = msgspec.structs.replace(
            draft, action="status_update", reply_to=id, thread=task.context, answers=True
        )
        await self._require(SEND, a2a_messages.send_arguments(more, task.recipient))
        await store.send(more, sender=self._sender, recipient=task.recipient)
        return await self.task(id)

    async def _named(self, store: MessageStore, recipient: str) -> str:
        if recipient:
            return agent_registry.resolve_recipient(await store.state(), recipient)
        leads = [
            name for name, agent in agent_registry.agents(await store.state()).items() if agent.role == "lead"
        ]
        if len(leads) != 1:
            text = 'Name the agent: message.metadata {"recipient":"NAME"}, or use its own address, /a2a/NAME.'
            raise A2aError(a2a_messages.INVALID_PARAMS, text)
        return leads[0]

    async def shown_task(self, id: str) -> A2aTask:
        """Return a task of this client, if it may read."""
        await self._require(READ, {"id": id})
        return await self.task(id)

    async def task(self, id: str) -> A2aTask:
        """Return a task of this client."""
        return await a2a_tasks.read_task(await self._mail.store(), self._sender, id)

    async def tasks(self, params: ListParams) -> list[A2aTask]:
        """Return the newest tasks of this client."""
        await self._require(LIST, {"limit": params.page_size})
        store = await self._mail.store()
        tasks = []
        for receipt in await store.receipts(self._sender, limit=params.page_size * 2):
            try:
                task = await self.task(receipt.in_reply_to)
            except (A2aError, SwitchboardError):
                continue  # no task, or one with a result that cannot be read any more
            if params.context_id in ("", task.context) and params.status in ("", task.state):
                tasks.append(task)
        return tasks[: params.page_size]

    async def cancel(self, id: str) -> A2aTask:
        """Recall the message of a task, while nobody has claimed it."""
        task = await self.task(id)
        if task.state in a2a_tasks.FINAL:
            raise A2aError(a2a_messages.NOT_CANCELABLE, f"Task '{id[:100]}' has ended.")
        await self._require(RECALL, {"id": id})
        await recall.recall(await self._mail.store(), self._sender, id, "Canceled over A2A.")
        return await self.task(id)

    async def updates(self, task: A2aTask) -> AsyncIterator[A2aTask]:
        """Yield the task when it has changed, until it rests."""
        store = await self._mail.store()
        with _changes(store, {self._sender, task.recipient}) as changed:
            while task.state not in a2a_tasks.RESTING:
                changed.clear()
                latest = await self.task(task.id)
                if (latest.state, latest.note, len(latest.artifacts)) != (
                    task.state,
                    task.note,
                    len(task.artifacts),
                ):
                    yield latest
                    task = latest
                    continue
                try:
                    async with asyncio.timeout(LOOK_AGAIN_S):
                        await changed.wait()
                except TimeoutError:
                    pass

    async def wait(self, task: A2aTask) -> A2aTask:
        """Wait until the task rests, within limits."""
        try:
            async with asyncio.timeout(WAIT_S):
                async for latest in self.updates(task):
                    task = latest
        except TimeoutError:
            pass
        return task


@contextmanager
def _changes(store: MessageStore, agents: set[str]) -> Iterator[asyncio.Event]:
    changed = asyncio.Event()

    def listen(change: MailboxChange) -> None:
        changed.set()

    unsubscribe = store.subscribe(listen, agents=agents)
    try:
        yield changed
    finally:
        unsubscribe()


async def _send_message(client: A2aClient, raw: Raw) -> dict[str, object]:
    params: SendParams = a2a_messages.convert(raw, SendParams)
    task = await client.send(params)
    if not params.configuration.return_immediately:
        task = await client.wait(task)
    return {"task": task.view(params.configuration.history_length)}


async def _get_task(client: A2aClient, raw: Raw) -> dict[str, object]:
    params: TaskParams = a2a_messages.convert(raw, TaskParams)
    return (await client.shown_task(params.id)).view(params.history_length)


async def _list_tasks(client: A2aClient, raw: Raw) -> dict[str, object]:
    params: ListParams = a2a_messages.convert(raw, ListParams)
    tasks = [task.view(0) for task in await client.tasks(params)]
    return {"tasks": tasks, "nextPageToken": "", "pageSize": params.page_size, "totalSize": len(tasks)}


async def _cancel_task(client: A2aClient, raw: Raw) -> dict[str, object]:
    params: TaskParams = a2a_messages.convert(raw, TaskParams)
    return (await client.cancel(params.id)).view()


async def _stream_message(client: A2aClient, raw: Raw) -> A2aTask:
    params: SendParams = a2a_messages.convert(raw, SendParams)
    return await client.send(params)


async def _subscribe(client: A2aClient, raw: Raw) -> A2aTask:
    params: TaskParams = a2a_messages.convert(raw, TaskParams)
    task = await client.shown_task(params.id)
    if task.state in a2a_tasks.FINAL:
        raise A2aError(a2a_messages.UNSUPPORTED, f"Task '{params.id[:100]}' has ended.")
    return task


METHODS: dict[str, Handler] = {
    "SendMessage": _send_message,
    "GetTask": _get_task,
    "ListTasks": _list_tasks,
    "CancelTask": _cancel_task,
}
STREAMS: dict[str, Callable[[A2aClient, Raw], Awaitable[A2aTask]]] = {
    "SendStreamingMessage": _stream_message,
    "SubscribeToTask": _subscribe,
}


async def _send_events(exchange: HttpExchange, id: bytes, client: A2aClient, task: A2aTask) -> None:
    """Send the task, then its changes, until it rests or the client disconnects."""
    output = EventStream(asyncio.get_running_loop(), exchange.guard)

    def put(name: str, value: dict[str, object]) -> None:
        output.put(event_stream.event(jsonrpc.result(id, msgspec.json.encode({name: value}))))

    async def produce() -> None:
        shown, status = len(task.artifacts), task.status
        try:
            async for latest in client.updates(task):
                names = {"taskId": latest.id, "contextId": latest.context}
                for artifact in latest.artifacts[shown:]:
                    put("artifactUpdate", {**names, "artifact": artifact, "lastChunk": True})
                shown = len(latest.artifacts)
                if latest.status != status:  # A result comes a moment before the end of its task.
                    status = latest.status
                    put("statusUpdate", {**names, "status": status})
        except (A2aError, SwitchboardError) as problem:
            output.put(event_stream.event(jsonrpc.error(id, a2a_messages.INTERNAL, str(problem))))
        finally:
            output.finish()

    put("task", task.view())
    producer = asyncio.create_task(produce())
    try:
        await exchange.stream(output)
    finally:
        producer.cancel()
