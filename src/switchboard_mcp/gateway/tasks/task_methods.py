"""`tasks/*` of hosts: a task is used by the client that started it, while it may call the tool that runs it.

For every other client there is no such task. A task is a child's, known to the host by the child's id or, if a
suite has started it, by one of ours; or it is one that Switchboard runs (`own_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Raw

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from switchboard_mcp.gateway.call_path import send, send_without_answer
from switchboard_mcp.gateway.forward import TOOLS, ForwardedRequest, Relay
from switchboard_mcp.gateway.incoming import IncomingRequest
from switchboard_mcp.gateway.issued_ids import MAX_TASK_S, IdKind, IssuedId
from switchboard_mcp.gateway.request import HostRequest, missing_capability_error
from switchboard_mcp.gateway.session import ListenSubscription
from switchboard_mcp.gateway.suites.child_suite import ChildSuite, ResolvedName
from switchboard_mcp.gateway.suites.views import View
from switchboard_mcp.gateway.tasks.awaited_tasks import note_task
from switchboard_mcp.gateway.tasks.own_tasks import STATUS, OwnTask, tasks_of
from switchboard_mcp.protocol import client_requests, jsonrpc, message_meta, result_ids, versions
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.transport.rpc import next_id

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


class OwnTaskRelay(Relay):
    """A request about a task that Switchboard runs. The child is asked only for the progress of its own task."""

    needs_child = False

    def __init__(self, task: OwnTask) -> None:
        self._task = task

    def send(self, request: ForwardedRequest, child: Child) -> bool:
        """Serve the request."""
        task, method = self._task, request.method
        if method == "tasks/result":
            self._issue_links(request)
            task.wait(request)
        elif method == "tasks/get":
            if not self._poll_child(request):
                self._describe(request)
        elif method == "tasks/update":
            answers = decode_members(request.members.get("inputResponses", Raw(b"{}")))
            if all(map(message_meta.is_object, answers.values())):
                task.update(answers)
                request.finish(b"{}")
            else:
                error = {"code": INVALID_PARAMS, "message": "tasks/update: each input response is an object."}
                request.refuse(jsonrpc.encode(error), "invalid_params")
        elif task.has_ended and not request.is_stateless:
            error = {"code": INVALID_PARAMS, "message": f"The task has ended already: {task.status}."}
            request.refuse(jsonrpc.encode(error), "invalid_params")
        else:
            task.cancel("cancelled by the host")
            self._describe(request, whole=not request.is_stateless)
        return True

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Return the task, with what the child reports of its own."""
        self._task.report(STATUS, result, b"")
        return Raw(self._body(request))

    def recover(self, request: ForwardedRequest, error: Raw) -> Raw | None:
        """Return the task as it is known here, if the child does not know its own any more."""
        return Raw(self._body(request))

    def _poll_child(self, request: ForwardedRequest) -> bool:
        """Ask a legacy child that runs the call as a task for its status message; return False if there is none."""
        call = self._task.request
        childs_id: str = getattr(call, "task", "")
        if not isinstance(call, HostRequest) or not childs_id or call.child.is_stateless:
            return False
        request.child, request.members = call.child, {"taskId": Raw(jsonrpc.encode(childs_id))}
        request.dispatch(call.child, id := next_id(), request.build(call.child, id))
        return True

    def _describe(self, request: ForwardedRequest, *, whole: bool = True) -> None:
        self._issue_links(request)
        request.finish(self._body(request) if whole else b"{}")

    def _body(self, request: ForwardedRequest) -> bytes:
        return jsonrpc.encode(self._task.describe(stateless=request.is_stateless, client=request.client))

    def _issue_links(self, request: ForwardedRequest) -> None:
        """Record the resources that the result links to: the host that fetches it may read them."""
        result, session = self._task.result, request.session
        if result is not None:
            for uri in result_ids.links(bytes(result)):
                session.broker.issued.issue(session, request.suite.child, IdKind.RESOURCE, uri)


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
    """`tasks/list`: of all the child's tasks, those of the host, after those that Switchboard runs for it."""

    def __init__(self, ours: list[dict[str, object]]) -> None:
        self._ours = ours

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Remove the tasks of other clients."""
        result = super().receive(request, result)
        try:
            members = decode_members(result)
            tasks = msgspec.json.decode(members.get("tasks", Raw(b"[]")), type=list[dict[str, Raw]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            members, tasks = {}, []
        own = [task for task in tasks if self._is_own(request, message_meta.decode_text(task.get("taskId")))]
        ours = self._ours if "cursor" not in request.members else []
        return Raw(jsonrpc.encode({**members, "tasks": [*ours, *own]}))

    def _is_own(self, request: ForwardedRequest, task: str | None) -> bool:
        issued = request.session.broker.issued
        issued_id = (
            issued.find(request.session, request.child, IdKind.TASK, task) if task is not None else None
        )
        return issued_id is not None and request.suite.access.permits(issued_id.item)


TOOL_CALL, TASK, PAGED = ToolCallRelay(), TaskRelay(), PagedRelay()


def use_task(gateway: TaskGateway, inbound: IncomingRequest) -> None:
    """Forward a request about one task to the child that runs it."""
    task = inbound.text("taskId")
    own = find_own_task(gateway, inbound, task)
    resolved = _find_task(gateway, inbound, task) if own is None else own[0]
    view = gateway.view_of(inbound.session.viewer)
    if (
        resolved is None
        and not view.tool_list.offers_tasks(stateless=inbound.is_stateless)
        and not any(_offers_tasks(suite) for suite in _suites_of_family(gateway, inbound))
    ):
        inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {inbound.method}")
    elif inbound.is_stateless and not client_requests.declares_tasks(inbound.capabilities):
        missing = missing_capability_error({"extensions": {client_requests.TASKS: {}}})
        inbound.channel.answer(jsonrpc.error_body(inbound.id, missing))
    elif own is not None:
        send(inbound, own[0], inbound.members, OwnTaskRelay(own[1]))
    elif isinstance(resolved, tuple):
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
    """List the host's own tasks: those that Switchboard runs, and those at the one direct child."""
    view = gateway.view_of(inbound.session.viewer)
    only = view.tool_list.only_direct()
    ours = [
        task.describe(stateless=False, client=inbound.client)
        for task in tasks_of(inbound.session).of(inbound.session)
        if (suite := view.suite_of(task.child)) is not None and suite.access.permits(task.subtool)
    ]
    if only is not None and not _is_stateless(only):
        if holds_cursor(inbound, only):
            send(inbound, ResolvedName(only, "", ""), inbound.members, TaskListRelay(ours))
    elif not view.tool_list.offers_tasks(stateless=False):
        inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {inbound.method}")
    elif "cursor" in inbound.members:
        inbound.refuse(INVALID_PARAMS, "Unknown or expired cursor.")
    else:
        inbound.answer(jsonrpc.encode({"tasks": ours}))


def find_own_task(
    gateway: TaskGateway, inbound: IncomingRequest, id: str
) -> tuple[ResolvedName, OwnTask] | None:
    """Return a task that Switchboard runs for this host, and the tool that its call is for."""
    task = tasks_of(inbound.session).find(inbound.session, id)
    suite = gateway.view_of(inbound.session.viewer).suite_of(task.child) if task is not None else None
    if task is None or suite is None:
        return None
    return ResolvedName(suite, task.subtool, TOOLS if task.subtool else ""), task


def listen_to_tasks(
    gateway: TaskGateway, inbound: IncomingRequest, listen: ListenSubscription, ids: list[str]
) -> dict[str, Callable[[], None]]:
    """Return the tasks of a host that it will be notified of, each with what begins that."""
    honoured: dict[str, Callable[[], None]] = {}
    for id in ids[:MAX_LISTENED_TASKS]:
        own = find_own_task(gateway, inbound, id)
        if own is not None and own[0].is_permitted:
            honoured[id] = partial(own[1].listen, inbound.session, listen)
        elif own is None and _find_task(gateway, inbound, id) is not None:
            honoured[id] = partial(WatchRelay(gateway, inbound, listen).watch, id)
    return honoured


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
