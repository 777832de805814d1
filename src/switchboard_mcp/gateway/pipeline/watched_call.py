"""One call that is watched for the dashboard: when it reached each phase, and what was sent and returned.

Loaded only while details of calls are kept. A watched call is the reply channel of its request, so it sees what the
host receives, and how long that took.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from switchboard_mcp.errors import Failure
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.policy.gate.rules import Decision
    from switchboard_mcp.protocol.message_meta import Meta


class WatchedSuite(Protocol):
    """The suite of a watched request."""

    name: str
    redact_args: list[str]


class WatchedRequest(Protocol):
    """A request that can be watched: see `PipelineRequest`."""

    session: Session
    channel: ReplyChannel
    id: bytes
    deadline: float
    timeout_s: float
    meta: Meta | UnsetType

    @property
    def suite(self) -> WatchedSuite:
        """The suite that was called."""

    @property
    def client_version(self) -> str:
        """The version of the client."""


class CallKeeper(Protocol):
    """Keeps watched calls, within its limits. `body_bytes` is how much of a body it wants."""

    body_bytes: int

    def keep(self, call: WatchedCall) -> None:
        """Keep a call that has ended and was recorded."""

    def grown(self, size: int) -> None:
        """Note that a kept call has this many bytes more."""


class WatchedCall:
    """A call from its begin to its answer. Times are those of `monotonic`; 0 if the phase was not reached."""

    __slots__ = (
        "acquired_at",
        "answered_at",
        "args",
        "args_bytes",
        "asked_at",
        "channel",
        "child_at",
        "decision",
        "gate_outcome",
        "is_kept",
        "keeper",
        "person_s",
        "principal",
        "problem",
        "profile",
        "redact_args",
        "relisted",
        "result",
        "result_bytes",
        "rounds",
        "sent_at",
        "session",
        "started_at",
        "suite",
        "traceparent",
        "version",
    )

    def __init__(self, request: WatchedRequest, keeper: CallKeeper) -> None:
        session = request.session
        self.channel: ReplyChannel = request.channel
        self.keeper = keeper
        self.started_at = monotonic()
        self.acquired_at = self.sent_at = self.child_at = self.answered_at = 0.0
        self.asked_at = self.person_s = 0.0  # since when a person is asked, and how long persons took
        self.args = self.result = b""
        self.args_bytes = self.result_bytes = self.rounds = 0
        self.problem: Failure | None = None
        self.decision: Decision | None = None
        self.gate_outcome = ""
        self.session = 0 if session.ephemeral else session.number
        self.version = request.client_version
        self.profile = session.profile
        self.principal = session.principal
        self.suite = request.suite.name
        self.redact_args = request.suite.redact_args
        self.relisted = self.is_kept = False
        self.traceparent = b""

    @property
    def size(self) -> int:
        """Bytes of the bodies that are kept."""
        return len(self.args) + len(self.result)

    def acquire(self, acquire: Callable[[], None], request: WatchedRequest) -> None:
        """Note that the request proceeds to its child. If that runs, the request was sent when this returns."""
        self.acquired_at = now = monotonic()
        acquire()
        if request.id:
            self.sent_at = now

    def note_decision(self, outcome: str) -> None:
        """Note that a person is asked about the call, or has answered."""
        self.gate_outcome = outcome
        self._end_wait()
        if outcome == "gate_asked":
            self.asked_at = monotonic()

    def settled(self) -> None:
        """Note that the child has answered, or the call has failed; the first time counts."""
        self.child_at = self.child_at or monotonic()
        self._end_wait()

    def _end_wait(self) -> None:
        """Count the wait for a person that ends now, if there is one."""
        if self.asked_at:
            self.person_s += monotonic() - self.asked_at
            self.asked_at = 0.0

    def close(self, request: WatchedRequest, args: bytes) -> None:
        """Note how the call ended, and hand it to the keeper. The answer to the host may follow."""
        self.settled()
        if request.id and not self.sent_at:
            # It had to wait for the start of its child. The clock of the loop may be some milliseconds behind.
            sent = request.deadline - request.timeout_s
            self.sent_at = min(max(sent, self.acquired_at), self.child_at)
        self.args_bytes = len(args)
        self.args = args[: self.keeper.body_bytes]
        self.relisted = getattr(request, "relisted", False)
        self.rounds = getattr(request, "rounds", 0)
        if request.meta is not UNSET and "traceparent" in request.meta:
            self.traceparent = bytes(request.meta["traceparent"])[:100]
        self.is_kept = True
        self.keeper.keep(self)

    @property
    def backlog(self) -> int:
        """Bytes that the host has not taken."""
        return self.channel.backlog

    def send(self, message: bytes) -> None:
        """Pass a notification or a request on to the host."""
        self.channel.send(message)

    def answer(self, message: bytes) -> None:
        """Pass the response on to the host, and keep its beginning."""
        self.channel.answer(message)
        self.answered_at = monotonic()
        self.result_bytes = len(message)
        self.result = message[: self.keeper.body_bytes]
        if self.is_kept:
            self.keeper.grown(len(self.result))
