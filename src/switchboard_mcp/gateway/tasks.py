"""Tools of legacy children that only run as tasks, called by hosts without task support.

The call is started as a task and its result awaited with `tasks/result`, so the host sees an ordinary call. Client
requests of the task belong to the waiting request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct, UnsetType

from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.transport.rpc import AwaitedRequest, next_id

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.gateway.request import HostRequest
    from switchboard_mcp.protocol.result_ids import CreatedTask

# A task may run for a very long time; its host can cancel it.
TASK_TIMEOUT_S = 24 * 3600.0


class _Task(Struct, rename="camel"):
    task_id: str


class _Created(Struct):
    task: _Task | UnsetType = msgspec.UNSET


_decode_created = msgspec.json.Decoder(_Created).decode


def await_task(request: HostRequest, result: Raw) -> bool:
    """If a result only announces a task, wait for the task's own result; return False if it is the result itself."""
    if getattr(request, "task", None) is not None or b'"taskId"' not in bytes(result):
        return False
    created = _decode_created(result).task
    peer = request.child.peer
    if isinstance(created, UnsetType) or peer is None:
        return False
    request.task = created.task_id
    id = next_id()
    params = jsonrpc.encode({"taskId": created.task_id})
    request.dispatch(request.child, id, jsonrpc.request(id, "tasks/result", params), TASK_TIMEOUT_S)
    return True


def note_task(child: Child, task: CreatedTask, now: float) -> None:
    """Keep a child running while a task runs that a host may poll."""
    child.note_task(task.id, now + min(task.ttl_s, TASK_TIMEOUT_S), ended=task.has_ended)


def cancel_task(request: HostRequest) -> None:
    """Cancel the child's task of a request that the host no longer awaits."""
    task: str | None = getattr(request, "task", None)
    peer = request.child.peer
    if task is not None and peer is not None:
        params = jsonrpc.encode({"taskId": task})
        peer.send(
            AwaitedRequest(request.session.broker.loop, "tasks/cancel", params, request.child.call_timeout_s)
        )
