"""`tasks/*` of hosts: a task is used by the client that started it, while it may call the tool that runs it.

For every other client there is no such task. A task is always a child's, of the protocol version family of its host:
the host knows it by the child's id or, if a suite has started it, by one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Raw

from switchboard_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from switchboard_mcp.gateway.call_path import send, send_without_answer
from switchboard_mcp.gateway.forward import TOOLS, ForwardedRequest, Relay
from switchboard_mcp.gateway.incoming import IncomingRequest
from switchboard_mcp.gateway.issued_ids import MAX_TASK_S, IdKind, IssuedId
from switchboard_mcp.gateway.request import missing_capability_error
from switchboard_mcp.gateway.session import ListenSubscription
from switchboard_mcp.gateway.suites.child_suite import ChildSuite, ResolvedName
from switchboard_mcp.gateway.suites.views import View
from switchboard_mcp.gateway.tasks.awaited_tasks import note_task
from switchboard_mcp.protocol import client_requests, jsonrpc, message_meta, result_ids, versions
from switchboard_mcp.protocol.jsonrpc import decode_members

# Tasks that one subscription can name.
MAX_LISTENED_TASKS = 100


class TaskGateway(Protocol):
    """The gateway, as far as tasks need it."""

    def view_of(self, viewer: str) -> View:
        """Return the view of a principal."""

    def record_unknown(self, inbound: IncomingRequest, outcome: str) -> None:
        """Record a request for something that no child in the host's view offers."""


class ToolCallRelay(Relay):
    """`tools/call` of a direct tool: a task that it starts belongs to the caller."""

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Record the task that a result announces."""
        task = result_ids.created_task(bytes(result)) if not request.runs_as_task else result_ids.NO_TASK
        if task.id:
            broker = request.session.broker
            broker.issued.issue(request.session, request.child, IdKind.TASK, task.id, request.match.name)
            note_task(request.child, task, broker.loop.time())
        return result


class TaskRelay(Relay):
    """A request about a task."""

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Record whether the task still runs."""
        task = result_ids.reported_task(bytes(result))
        if task.id:
            note_task(request.child, task, request.session.broker.loop.time())
        return result


class SuiteTaskRelay(TaskRelay):
    """A request about a task of a suite: the host knows the task by our id, the child by its own."""

    def __init__(self, id: str, task: IssuedId) -> None:
        self._id = id
        self._task = task

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Return the result with our id; what it says of the task's end and of resources is recorded."""
        result = super().receive(request, result)
        reported, task = result_ids.reported_task(bytes(result)), self._task
        if reported.id:
            task.ended = task.ended or reported.has_ended
            task.expires = task.created + min(reported.ttl_s, MAX_TASK_S)
        for uri in result_ids.task_links(bytes(result)):
            request.session.broker.issued.issue(request.session, request.child, IdKind.RESOURCE, uri)
        return result_ids.with_task_id(result, self._id)


class WatchRelay(Relay):
    """Polls a task of a child for a host that listens for its changes."""

    def __init__(self, gateway: TaskGateway, inbound: IncomingRequest, listen: ListenSubscription) -> None:
        self._gateway = gateway
        self._inbound = inbound
        self._listen = listen
        self._last = b""

    def watch(self, task: str) -> None:
        """Poll the task once, if the host still listens and still has it."""
        session, match = self._inbound.session, _find_task(self._gateway, self._inbound, task)
        if match is not None and session.listens.get(self._listen.id) is self._listen:
            self._task = task
            members = {"taskId": Raw(jsonrpc.encode(match[1].other_id or task))}
            send_without_answer(session, "tasks/get", match[0], self, members, like=self._inbound)

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Report a change, and poll again unless the task has ended."""
        body = bytes(result_ids.with_task_id(result, self._task))
        listens = request.session.listens.get(self._listen.id) is self._listen
        if body != self._last and listens:
            self._last = body
            members = decode_members(body)
            members.pop("resultType", None)
            self._listen.notify("notifications/tasks", members)
        if listens and not result_ids.reported_task(body).has_ended:
            wait_s = result_ids.poll_interval_s(body)
            request.session.broker.loop.call_later(wait_s, self.watch, self._task)
        return result


class PagedRelay(Relay):
    """A method with pages: the cursor of the next page belongs to the host that receives it."""

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Record the cursor."""
        cursor = result_ids.next_cursor(bytes(result))
        if cursor is not None:
            request.session.broker.issued.issue(request.session, request.child, IdKind.CURSOR, cursor)
        return result


class TaskListRelay(PagedRelay):
    """`tasks/list`: of all the child's tasks, those of the host."""

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Remove the tasks of other clients."""
        result = super().receive(request, result)
        try:
            members = decode_members(result)
            tasks = msgspec.json.decode(members.get("tasks", Raw(b"[]")), type=list[dict[str, Raw]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            members, tasks = {}, []
        own = [task for task in tasks if self._is_own(request, message_meta.decode_text(task.get("taskId")))]
        return Raw(jsonrpc.encode({**members, "tasks": own}))

    def _is_own(self, request: ForwardedRequest, task: str | None) -> bool:
        issued = request.session.broker.issued
        issued_id = (
            issued.find(request.session, request.child, IdKind.TASK, task) if task is not None else None
        )
        return issued_id is not None and request.suite.access.permits(issued_id.item)


TOOL_CALL, TASK, PAGED, TASK_LIST = ToolCallRelay(), TaskRelay(), PagedRelay(), TaskListRelay()


def use_task(gateway: TaskGateway, inbound: IncomingRequest) -> None:
    """Forward a request about one task to the child that runs it."""
    task = inbound.text("taskId")
    resolved = _find_task(gateway, inbound, task)
    if resolved is None and not any(_offers_tasks(suite) for suite in _suites_of_family(gateway, inbound)):
        inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {inbound.method}")
    elif inbound.is_stateless and not client_requests.declares_tasks(inbound.capabilities):
        missing = missing_capability_error({"extensions": {client_requests.TASKS: {}}})
        inbound.channel.answer(jsonrpc.error_body(inbound.id, missing))
    elif resolved is not None:
        match, issued = resolved
        if issued.other_id:
            members = {**inbound.members, "taskId": Raw(jsonrpc.encode(issued.other_id))}
            send(inbound, match, members, SuiteTaskRelay(task, issued))
        else:
            send(inbound, match, inbound.members, TASK)
    else:
        gateway.record_unknown(inbound, "task_unknown")
        inbound.refuse(INVALID_PARAMS, "Unknown or expired task.")


def list_tasks(gateway: TaskGateway, inbound: IncomingRequest) -> None:
    """List the host's own tasks at the one direct child."""
    only = gateway.view_of(inbound.session.viewer).tool_list.only_direct()
    if only is None or _is_stateless(only):
        inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {inbound.method}")
    elif holds_cursor(inbound, only):
        send(inbound, ResolvedName(only, "", ""), inbound.members, TASK_LIST)


def listen_to_tasks(
    gateway: TaskGateway, inbound: IncomingRequest, listen: ListenSubscription, ids: list[str]
) -> dict[str, Callable[[], None]]:
    """Return the tasks of a host that it will be notified of, each with what begins that."""
    return {
        id: partial(WatchRelay(gateway, inbound, listen).watch, id)
        for id in ids[:MAX_LISTENED_TASKS]
        if _find_task(gateway, inbound, id) is not None
    }


def holds_cursor(inbound: IncomingRequest, suite: ChildSuite) -> bool:
    """Return True if a request has no cursor, or one that the child gave to this host; else refuse the request."""
    cursor = message_meta.decode_text(inbound.members.get("cursor"))
    if "cursor" not in inbound.members:
        return True
    session, issued = inbound.session, inbound.session.broker.issued
    for child in suite.child.processes(session.process_owner):
        if cursor is not None and issued.find(session, child, IdKind.CURSOR, cursor) is not None:
            return True
    inbound.refuse(INVALID_PARAMS, "Unknown or expired cursor.")
    return False


def _find_task(
    gateway: TaskGateway, inbound: IncomingRequest, task: str
) -> tuple[ResolvedName, IssuedId] | None:
    """Return the tool that runs a task of this host, and the task."""
    session, issued = inbound.session, inbound.session.broker.issued
    now = session.broker.loop.time()
    for suite in _suites_of_family(gateway, inbound):
        for child in suite.child.processes(session.process_owner):
            issued_id = issued.find_task(session, child, task, now)
            if issued_id is None:
                issued_id = issued.find(session, child, IdKind.TASK, task)
                if issued_id is not None and issued_id.other_id:  # the host knows this one by our id
                    issued_id = None
            if issued_id is not None:
                return ResolvedName(suite, issued_id.item, TOOLS), issued_id
    return None


def _suites_of_family(gateway: TaskGateway, inbound: IncomingRequest) -> Iterator[ChildSuite]:
    """Yield the suites whose tasks are those of the host's protocol version family."""
    for suite in gateway.view_of(inbound.session.viewer).suites.values():
        if _is_stateless(suite) is inbound.is_stateless:
            yield suite


def _offers_tasks(suite: ChildSuite) -> bool:
    """Return True if a host may have a task of this suite."""
    return suite.lists_own_entries(TOOLS) or suite.child.inventory.has_tasks


def _is_stateless(suite: ChildSuite) -> bool:
    """Return True if a child is known to be stateless."""
    knowledge = suite.child.snapshot
    return knowledge is not None and versions.is_stateless(knowledge.protocol)
