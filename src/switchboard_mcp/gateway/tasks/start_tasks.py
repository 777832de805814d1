"""Decides which calls become tasks of our own, and starts these.

A legacy host asks for a task with `task`. A stateless host declares that it knows tasks; then a tool that a legacy
child runs as tasks only becomes one at once, one that it can run as a task after a second, and any other after
`tasks.after`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.config.models import TaskSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.held_session import move_program_calls
from switchboard_mcp.gateway.incoming import suite_call
from switchboard_mcp.gateway.tasks.own_tasks import CALL_ID, OwnTask, task_meta, tasks_of
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.client_requests import capabilities_for_stateless, declares_tasks
from switchboard_mcp.transport.rpc import UNREADABLE

if TYPE_CHECKING:
    from switchboard_mcp.gateway.request import HostRequest
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams

# A tool that can run as a task is often quick; then its result is better than a task.
OPTIONAL_AFTER_S = 1.0


class TaskSuite(Protocol):
    """The suite of a child, as far as its tasks need it."""

    source: str
    child: Child
    task_settings: TaskSettings

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call."""


class _Wanted(Struct):
    """The `task` member of a legacy host's call."""

    ttl: float | None = None


_decode_wanted = msgspec.json.Decoder(_Wanted).decode


def begin_as_task(
    suite: TaskSuite, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams
) -> bool:
    """Run a call as a task if its host wants one, or knows tasks and the tool is one; return False if it is neither."""
    wanted, params.task = params.task, UNSET
    stateless = message_meta.is_stateless(params.meta)
    if stateless:
        arguments = params.arguments
        is_task = (
            arguments.action == "call"
            and suite.child.inventory.can_run_as_task(arguments.subtool, only=True)
            and declares_tasks(message_meta.client_capabilities(params.meta, b"{}"))
        )
    else:
        is_task = wanted is not UNSET and session.offers_tasks
    if not is_task:
        return False
    capabilities = _capabilities(
        message_meta.client_capabilities(params.meta, session.capabilities), stateless
    )
    ttl_s = _time_to_live(wanted, suite.task_settings)
    subtool = params.arguments.subtool
    task = tasks_of(session).create(
        session, suite.source, subtool, capabilities, ttl_s, suite.task_settings.limit
    )
    if task is None:
        if not stateless:
            suite_call(session, channel, id, params.meta).fail(_too_many(suite))
        return not stateless
    _name_client(task, params.meta)
    channel.answer(jsonrpc.result(id, task.handle(stateless=stateless)))
    params.meta = task_meta(params.meta)
    suite.begin(task.session, task.session.channel, CALL_ID, params)
    return True


def watch(suite: TaskSuite, session: Session, request: HostRequest, subtool: str) -> None:
    """Make a task of a stateless host's call that takes long, if the host knows tasks."""
    if declares_tasks(request.capabilities):
        loop = session.broker.loop
        after_s = min(suite.task_settings.after_s or OPTIONAL_AFTER_S, OPTIONAL_AFTER_S)
        loop.call_later(after_s, _review, suite, request, subtool, loop.time())


def _review(suite: TaskSuite, request: HostRequest, subtool: str, began: float) -> None:
    """Make a task of a call that has taken long enough; the tools of a child may be known only now."""
    after_s = suite.task_settings.after_s
    if suite.child.inventory.can_run_as_task(subtool):
        after_s = min(after_s or OPTIONAL_AFTER_S, OPTIONAL_AFTER_S)
    loop = request.session.broker.loop
    if after_s and loop.time() >= began + after_s:
        _convert(suite, request, subtool, after_s)
    elif after_s:
        loop.call_at(began + after_s, _review, suite, request, subtool, began)


def _convert(suite: TaskSuite, request: HostRequest, subtool: str, after_s: float) -> None:
    """Answer the host of a call that still runs with a task, which the call then belongs to."""
    peer, broker = request.child.peer, request.session.broker
    if request.is_awaited and not broker.suspended.is_asking(request):
        capabilities = _capabilities(request.capabilities, True)
        settings = suite.task_settings
        task = tasks_of(request.session).create(
            request.session, suite.source, subtool, capabilities, settings.ttl_s, settings.limit
        )
        if task is not None:
            _move(request, task, settings.ttl_s)
    elif peer is not None and peer.pending.get(request.id) is request:  # it waits for its host
        broker.loop.call_later(after_s, _convert, suite, request, subtool, after_s)


def _move(request: HostRequest, task: OwnTask, ttl_s: float) -> None:
    channel, host_id, meta = request.channel, request.host_id, request.meta
    move_program_calls(request, task.session)
    del request.session.in_flight[host_id]
    _name_client(task, meta)
    request.session, request.channel, request.host_id = task.session, task.session.channel, CALL_ID
    request.meta = task_meta(meta)
    task.session.in_flight[CALL_ID] = request
    request.timeout_s = ttl_s
    request.extend_deadline(ttl_s)
    channel.answer(jsonrpc.result(host_id, task.handle(stateless=True)))


def _name_client(task: OwnTask, meta: message_meta.Meta | msgspec.UnsetType) -> None:
    """Record the client program of a stateless host, whose requests name it one by one."""
    info = meta.get(message_meta.CLIENT) if meta is not UNSET else None
    if info is not None:
        task.session.client = message_meta.client_name(info)
        task.session.client_version = message_meta.client_version(info)


def _capabilities(declared: bytes, stateless: bool) -> bytes:
    """Return the capabilities of a host for the call of a task, without those for tasks."""
    return capabilities_for_stateless(declared, stateless_host=False, tasks=False) if stateless else declared


def _time_to_live(wanted: Raw | msgspec.UnsetType, settings: TaskSettings) -> float:
    """Return the seconds that a task is kept: as many as its host wants, within the limit of the config."""
    try:
        ttl = _decode_wanted(wanted).ttl if wanted is not UNSET else None
    except UNREADABLE:
        ttl = None
    return settings.ttl_s if ttl is None or ttl <= 0 else min(ttl / 1000, settings.ttl_s)


def _too_many(suite: TaskSuite) -> Failure:
    limit = suite.task_settings.limit
    message = (
        f"There are {limit} tasks in progress, the maximum of tasks.limit. Cancel some, or try again later."
    )
    return failure("suite_busy", message, child=suite.source, retry_after_ms=1_000)
