"""The store of the desk: everything a tool, a command or a workflow does with mail goes through a `Post`.

Any number of processes may have a `Post` on the same workspace. Nothing is held in memory that is not also in the
files, so each may be killed at any moment. Every call that changes something answers when the change is durable;
where it cannot be made so, it raises `SwitchboardError` and nothing has been accepted.
Blocking work runs in one writer thread and one reader thread; the event loop never waits for a disk.
Does not know hosts, tools, terminals or workflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.letters import (
    Acked,
    Claimed,
    Delivery,
    Draft,
    Gate,
    Letter,
    Outcome,
    Receipt,
    Sent,
)

T = TypeVar("T")
State = dict[str, Any]
DEFAULT_LEASE_S = 300.0


class Change(Struct, frozen=True):
    """Something is new in a folder of an agent."""

    kind: str
    """`inbox`, `outbox` or `state`."""
    agent: str
    """Whose; empty for `state`."""


class Finding(Struct, rename="camel", kw_only=True):
    """One thing `verify` found, or `repair` mended."""

    kind: str
    """`lost`, `doubled`, `torn`, `foreign`, `temporary`, `half_moved`, `expired`, `receipt_missing`, `loose`."""
    path: str
    """Below `.switchboard/`."""
    message: str
    id: str | None = None
    mended: bool = False


class Verdict(Struct, rename="camel", kw_only=True):
    """What `verify` says: sound when every accepted id is in exactly one place."""

    sound: bool
    counts: dict[str, int]
    """How many messages are in each place: `inbox`, `claimed`, `archive`, `deadletter`."""
    findings: list[Finding]


class Post:
    """The store of one workspace. `async with await Post.open(folder) as post: …`."""

    @classmethod
    async def open(
        cls,
        workspace: str,
        *,
        gates: Sequence[Gate] = (),
        report: Callable[[Delivery], None] | None = None,
        watch: bool = True,
    ) -> Post:
        """Make or open `.switchboard/` in `workspace`, mend what a crash left behind, and begin to watch.

        `report` is told, on the event loop, of every dropped file that was delivered or became a dead letter.
        Without `watch` (for short commands) dropped files are delivered when somebody looks.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Let the writer finish what was handed to it, and stop."""
        raise NotImplementedError

    async def __aenter__(self) -> Post:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def add_gate(self, gate: Gate) -> None:
        """Another look at every message before it is accepted."""
        raise NotImplementedError

    async def register(self, name: str) -> str:
        """Make the folders of an agent, so that it can be written to; returns the name as its folders have it."""
        raise NotImplementedError

    async def agents(self) -> list[str]:
        """Everybody who has an inbox."""
        raise NotImplementedError

    async def send(self, draft: Draft, *, sender: str, recipient: str) -> Sent:
        """Store one message. `sender` is taken as verified: the caller knows it from the connection.

        Raises `mail_recipient_unknown` (with the nearest names), `mail_message_invalid`, `mail_too_large`, what a gate
        refuses with, or why it could not be stored.
        """
        raise NotImplementedError

    async def send_to_many(
        self, draft: Draft, *, sender: str, recipients: Sequence[str]
    ) -> list[Sent | Failure]:
        """The same message to several, each stored or refused on its own, in the order given."""
        raise NotImplementedError

    async def peek(self, agent: str, *, limit: int = 100, after: int = 0) -> list[Letter]:
        """What waits in an inbox, in the order it would be claimed; consumes nothing.

        `after` leaves out messages up to this `order`.
        """
        raise NotImplementedError

    async def read(self, agent: str, message_id: str) -> Letter:
        """One message to `agent`, wherever it is now; consumes nothing. Raises `mail_not_found`."""
        raise NotImplementedError

    async def wait(self, agent: str, timeout: float, *, after: int = 0, limit: int = 100) -> list[Letter]:
        """`peek`, as soon as there is something; empty after `timeout` seconds."""
        raise NotImplementedError

    async def claim(
        self,
        agent: str,
        *,
        most: int = 1,
        lease_s: float = DEFAULT_LEASE_S,
        ids: Sequence[str] | None = None,
    ) -> list[Claimed]:
        """Take up to `most` messages for `lease_s` seconds; unless acknowledged or renewed they go back then.

        Senders' messages keep their order; among senders the urgent ones come first. `ids` takes only these.
        """
        raise NotImplementedError

    async def renew(
        self, agent: str, message_id: str, *, fence: int, lease_s: float = DEFAULT_LEASE_S
    ) -> Claimed:
        """Hold a claimed message longer; the fence stays. Raises `mail_lease_lost`."""
        raise NotImplementedError

    async def ack(
        self,
        agent: str,
        message_id: str,
        *,
        fence: int = 0,
        outcome: Outcome = "done",
        summary: str = "",
        result: str | None = None,
        result_metadata: dict[str, Any] | None = None,
    ) -> Acked:
        """Settle a message: `done` and `failed` archive it, `rejected` makes it a dead letter with `summary`.

        `result` goes back to the sender as `submit_result`. With a `fence` that is not the message's newest it raises
        `mail_lease_lost`, and nothing is done; the same acknowledgement twice is answered twice. Without one
        (0) the message is settled whoever holds it: for a person at a shell.
        """
        raise NotImplementedError

    async def release(self, agent: str, message_id: str, *, fence: int = 0) -> None:
        """Put a claimed message back into the inbox, in its old place. Raises `mail_lease_lost`."""
        raise NotImplementedError

    async def receipts(
        self, sender: str, *, ids: Sequence[str] | None = None, limit: int = 100
    ) -> list[Receipt]:
        """What became of the messages of `sender`, newest first."""
        raise NotImplementedError

    async def search(
        self,
        agent: str,
        query: str = "",
        *,
        sender: str | None = None,
        action: str | None = None,
        places: Sequence[str] = ("inbox", "claimed", "archive"),
        limit: int = 50,
    ) -> list[Letter]:
        """Messages to `agent` whose words match, best first; without a query the newest first."""
        raise NotImplementedError

    async def attachment(self, letter: Letter) -> bytes:
        """The whole payload of a message that was too large for one, its hash checked."""
        raise NotImplementedError

    async def deliver(self, agent: str | None = None) -> list[Delivery]:
        """Deliver what was dropped as files, to one agent or to all. Watching does this by itself."""
        raise NotImplementedError

    async def state(self) -> State:
        """`state.json` as it is now. An unreadable one is set aside and made anew from what there is."""
        raise NotImplementedError

    async def update(self, change: Callable[[State], T]) -> T:
        """Run `change` on the state under the lock, and store what it has become; returns what `change` returned.

        `change` runs in the writer's thread and alters the state in place. What it raises leaves the file as it was.
        """
        raise NotImplementedError

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` on the event loop for every change, of this process or another; returns how to stop."""
        raise NotImplementedError

    async def verify(self) -> Verdict:
        """Look at every file and say whether each accepted id is in exactly one place."""
        raise NotImplementedError

    async def repair(self) -> list[Finding]:
        """Mend what a crash left: temporary files, half moves, expired leases, missing receipts."""
        raise NotImplementedError
