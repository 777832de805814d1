"""Tasks of A2A: a task is a message to an agent, its id the message's, its context the thread.

| mail | state of the task |
| --- | --- |
| in the inbox, or on its way to another machine | submitted |
| claimed | working; input-required after a question that the client has not answered |
| settled as done, failed, rejected | completed, failed, rejected |
| recalled | canceled |
| reassigned | that of the message which took its place |

Results and notes to the client are settled when a task with them is shown: nobody else claims them.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.conversations import attached_files, threads
from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.store.filenames import PLACES
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.server.a2a.a2a_messages import TASK_NOT_FOUND, A2aError, message_view

SUBMITTED, WORKING, INPUT_REQUIRED = (
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_INPUT_REQUIRED",
)
OUTCOMES = {
    "done": "TASK_STATE_COMPLETED",
    "failed": "TASK_STATE_FAILED",
    "rejected": "TASK_STATE_REJECTED",
    "recalled": "TASK_STATE_CANCELED",
}
FINAL = frozenset(OUTCOMES.values())
# States in which a stream ends: nothing happens until the client acts.
RESTING = FINAL | {INPUT_REQUIRED}
MAX_MESSAGES = 200


class A2aTask(Struct, kw_only=True):
    """A task as a client sees it."""

    id: str
    context: str
    recipient: str
    state: str
    at: str
    """The time of the change to this state."""
    note: dict[str, object] | None = None
    """The message that belongs to the state."""
    artifacts: list[dict[str, object]] = []
    history: list[dict[str, object]] = []

    @property
    def status(self) -> dict[str, object]:
        """Return the status."""
        status: dict[str, object] = {"state": self.state, "timestamp": self.at}
        return {**status, "message": self.note} if self.note else status

    def view(self, history: int | None = None) -> dict[str, object]:
        """Return the task with at most this many messages of its history; without a number, all."""
        kept = self.history if history is None else self.history[len(self.history) - max(0, history) :]
        view: dict[str, object] = {"id": self.id, "contextId": self.context, "status": self.status}
        if self.artifacts:
            view["artifacts"] = self.artifacts
        if kept:
            view["history"] = kept
        return {**view, "metadata": {"recipient": self.recipient}}


async def read_task(store: MessageStore, client: str, id: str) -> A2aTask:
    """Return a task that `client` has sent. Raises `A2aError` if there is none."""
    try:
        stored = await threads.find_message(store, client, id)
    except SwitchboardError as problem:
        raise A2aError(TASK_NOT_FOUND, problem.failure.message) from None
    if stored.message.sender != client:
        raise A2aError(TASK_NOT_FOUND, f"'{client}' has sent no task '{id[:100]}'.")
    thread = stored.message.thread
    received = await store.search(client, thread=thread, places=PLACES, limit=MAX_MESSAGES)
    current = stored
    if stored.outcome == "reassigned":
        current = await _successor(store, stored, received) or stored
    ids = {id, current.message.id}
    about = sorted(
        (item for item in received if item.message.reply_to in ids and item.message.recipient == client),
        key=lambda item: item.order,
    )
    answers = await store.search(
        current.message.recipient, thread=thread, sender=client, places=PLACES, limit=MAX_MESSAGES
    )
    own = [item for item in answers if item.message.reply_to in {*ids, *(n.message.id for n in about)}]
    task = A2aTask(
        id=id,
        context=thread,
        recipient=current.message.recipient,
        state=SUBMITTED,
        at=stored.message.created_at,
        history=[
            message_view(item.message, id, client)
            for item in sorted([stored, *about, *own], key=lambda item: item.order)
        ],
    )
    await _set_state(store, task, client, current, about, own)
    for item in about:
        if item.place == "inbox":
            try:
                await store.ack(client, item.message.id, summary="Shown to the client.")
            except SwitchboardError:
                pass  # It was settled at the same time.
    return task


async def _successor(
    store: MessageStore, stored: StoredMessage, received: list[StoredMessage]
) -> StoredMessage | None:
    """Return the message that replaced a reassigned one."""
    for name in await store.agents():
        messages = await store.search(
            name, thread=stored.message.thread, sender=stored.message.sender, places=PLACES, limit=10
        )
        for item in messages:
            key = item.message.metadata.get("idempotencyKey")
            if key in (f"reassigned {stored.message.id}", f"renamed {stored.message.id}"):
                return item
    return None


async def _set_state(
    store: MessageStore,
    task: A2aTask,
    client: str,
    current: StoredMessage,
    about: list[StoredMessage],
    own: list[StoredMessage],
) -> None:
    notes = [item for item in about if item.message.metadata.get("state") in ("working", "input-required")]
    results = [item for item in about if item.message.action == "submit_result"]
    if current.place == "claimed":
        task.state = WORKING
        if notes:
            last = notes[-1]
            task.at, task.note = last.message.created_at, message_view(last.message, task.id, client)
            is_question = last.message.metadata.get("state") == "input-required"
            if is_question and not any(item.order > last.order for item in own):
                task.state = INPUT_REQUIRED
    elif current.outcome in OUTCOMES or current.place == "deadletter":
        task.state = OUTCOMES.get(current.outcome or "", OUTCOMES["failed"])
        for receipt in await store.receipts(client, ids=[current.message.id]):
            task.at = receipt.processed_at
            task.note = {
                "messageId": receipt.id,
                "contextId": task.context,
                "taskId": task.id,
                "role": "ROLE_AGENT",
                "parts": [{"text": receipt.summary}],
            }
    for result in results:
        task.artifacts.append(await _artifact(store, result))


async def _artifact(store: MessageStore, stored: StoredMessage) -> dict[str, object]:
    message, parts = stored.message, list[dict[str, object]]()
    record = message.metadata.get("attachment")
    if isinstance(record, dict) and "name" in record:
        data = await store.attachment(message)
        raw = attached_files.encode_base64(data)
        kind = record.get("mediaType") or attached_files.media_type(str(record["name"]))
        parts.append({"raw": raw, "filename": str(record["name"]), "mediaType": str(kind)})
        text = message.payload
    else:
        text = (await store.attachment(message)).decode("utf-8", "replace")
    return {"artifactId": message.id, "name": "result", "parts": [{"text": text}, *parts]}
