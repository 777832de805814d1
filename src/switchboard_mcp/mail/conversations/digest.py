"""A digest for people: what waits and for whom, what is late, questions and failures, and the latest threads."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from switchboard_mcp.config.agent_names import OVERSEER
from switchboard_mcp.mail.conversations import threads
from switchboard_mcp.mail.messages import MailMessage, StoredMessage
from switchboard_mcp.mail.store.filenames import PLACES
from switchboard_mcp.mail.store.store import MessageStore

# Messages that are read of each agent, and threads that are listed.
MAX_MESSAGES = 500
MAX_THREADS = 20


class AgentDigest(Struct, rename="camel", kw_only=True):
    """The mail of one agent."""

    name: str
    unread: int = 0
    claimed: int = 0
    settled: dict[str, int] = {}
    """Outcomes of the messages since the beginning of the digest."""


class DigestItem(Struct, rename="camel", kw_only=True):
    """A message that a person may want to look at."""

    id: str
    sender: str
    recipient: str
    subject: str
    created_at: str
    state: str
    thread: str


class Digest(Struct, rename="camel", kw_only=True):
    """The digest of a workspace."""

    since: str
    agents: list[AgentDigest] = []
    for_you: list[DigestItem] = []
    """Unread messages to the overseer."""
    questions: list[DigestItem] = []
    """Questions that wait for an answer."""
    overdue: list[DigestItem] = []
    failed: list[DigestItem] = []
    threads: list[DigestItem] = []
    """The last message of each thread, newest first."""


async def make_digest(store: MessageStore, age_s: float, now: datetime | None = None) -> Digest:
    """Return the digest of the last `age_s` seconds."""
    at = now or datetime.now(UTC)
    since = at - timedelta(seconds=age_s)
    digest = Digest(since=since.isoformat(timespec="seconds").replace("+00:00", "Z"))
    latest: dict[str, tuple[datetime, StoredMessage]] = {}
    for name in await store.agents():
        messages = await store.search(name, places=PLACES, limit=MAX_MESSAGES)
        digest.agents.append(_agent(name, messages, since))
        for stored in messages:
            _sort_in(digest, stored, since, at)
            created = _time(stored.message.created_at)
            newest_in_thread = latest.get(stored.message.thread)
            if created >= since and (newest_in_thread is None or newest_in_thread[0] < created):
                latest[stored.message.thread] = created, stored
    newest = sorted(latest.values(), key=lambda item: item[0], reverse=True)[:MAX_THREADS]
    digest.threads = [_item(stored) for _, stored in newest]
    return digest


def _agent(name: str, messages: list[StoredMessage], since: datetime) -> AgentDigest:
    places = Counter(stored.place for stored in messages)
    settled = Counter[str](
        stored.outcome for stored in messages if stored.outcome and _time(stored.message.created_at) >= since
    )
    return AgentDigest(name=name, unread=places["inbox"], claimed=places["claimed"], settled=dict(settled))


def _sort_in(digest: Digest, stored: StoredMessage, since: datetime, now: datetime) -> None:
    message = stored.message
    recent = _time(message.created_at) >= since
    if stored.place == "inbox" and message.recipient == OVERSEER:
        digest.for_you.append(_item(stored))
    if stored.place == "inbox" and message.metadata.get("state") == "input-required":
        digest.questions.append(_item(stored))
    if threads.is_open(stored) and message.ack_by and _time(message.ack_by) < now:
        digest.overdue.append(_item(stored))
    if recent and (stored.outcome in ("failed", "rejected") or stored.place == "deadletter"):
        digest.failed.append(_item(stored))


def _item(stored: StoredMessage) -> DigestItem:
    message = stored.message
    return DigestItem(
        id=message.id,
        sender=message.sender,
        recipient=message.recipient,
        subject=subject_of(message),
        created_at=message.created_at,
        state=stored.outcome or stored.place,
        thread=message.thread,
    )


def subject_of(message: MailMessage) -> str:
    """Return the subject; without one, the beginning of the text."""
    return " ".join((message.subject or message.payload)[:200].split())


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
