"""One child: a state of `children.lifecycle`, at most one connection, and the visitors who wait for it.

Performs what the table decides. Single flight: however many visitors come while it starts, one process is started.
"""

from __future__ import annotations

from msgspec import Raw
from msgspec.json import encode

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.children.connection import Connection
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.health import ALIVE, RUNNING
from switchboard_mcp.children.inventory import CHANGES
from switchboard_mcp.children.lifecycle import (
    FAULT_RECHECK_S,
    Action,
    LifecycleEvent,
    State,
    setback,
)
from switchboard_mcp.children.resource_subscriptions import ACKNOWLEDGED, ChildSubscriptions
from switchboard_mcp.children.start_queue import StartQueue
from switchboard_mcp.children.startup import Meeting
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.message_meta import LEVELS
from switchboard_mcp.transport.rpc import AwaitedRequest

READY = State.READY  # looked up once: an enum member through its class is slow
# A child that does not read its stdin must not fill our memory: beyond this, calls to it are refused.
MAX_BACKLOG = 96 * 1024 * 1024
# A call that misses its subtool has the list fetched again, unless that one was looked for so lately: callers may be in
# a loop.
MISSED_S = 2.0
MOST_MISSED = 100
# Ends of a connection that say nothing against the child: whoever calls next connects again at once.
HARMLESS = frozenset({"message_too_large"})
FAULTS = frozenset(
    {
        "config_invalid",
        "variable_missing",
        "command_not_found",
        "command_not_executable",
        "folder_not_found",
        "child_protocol",
        "transport_unsupported",
        "child_unauthorized",
        "child_not_allowed",
        "launch_refused",
    }
)


class Child(Meeting):
    """See the module. `user` is whoever used this run last."""

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext) -> None:
        super().__init__(spec, config, context)
        self.requests = 0
        self.lookups = 0  # visits that were no calls
        self.successor: Child | None = None
        self.last_session: object = None
        self._fresh_s = config.introspection.fresh_ms / 1000
        self._waiting = StartQueue(self, context)
        self._quiet_since = 0.0
        self._log_level = ""
        self._visits_seen = 0
        self._missing: list[ReadyWaiter] = []  # who waits for the list of tools to be fetched again
        self._looked_for: dict[str, float] = {}  # subtools that were looked for, and when
        self.subscriptions = ChildSubscriptions(context, self.timeout_s, self._missed)

    @property
    def pid(self) -> int:
        """Its process id, 0 while it has none."""
        return self._connection.pid if self._connection else 0

    @property
    def is_stateless(self) -> bool:
        """Whether this run of it is spoken to in the era without handshakes."""
        return self.inventory.is_stateless

    @property
    def snapshot(self) -> ServerSnapshot | None:
        """What it told about itself, in this run or an earlier one."""
        return self.inventory.snapshot

    def acquire(self, visitor: ReadyWaiter) -> None:
        """Let the visitor in as soon as the child is ready, starting it where needed."""
        self.requests += 1
        if self.state is READY:
            visitor.on_ready(self)
            return
        barred = self._closing or self.inventory.blocked_reason()
        if barred is not None:
            self._turn_away(visitor, barred)
            return
        if visitor.catalog_is_enough and self._may_be_shown():
            visitor.on_ready(self)
            return
        self._review()
        # What another replica has said is asked for again with each call: it may have been taken back.
        waits = self.state not in RUNNING and self._told is None
        early = waits and self._retry_at > self._context.loop.time()
        action = self._apply(LifecycleEvent.EARLY if early else LifecycleEvent.NEED)
        if action is Action.SEND:
            visitor.on_ready(self)
        elif action is Action.REJECT:
            visitor.on_failed(self._rejection())
        else:
            self._waiting.add(visitor)
            if action is Action.START:
                self._stateless_first, self._capabilities = visitor.is_stateless, visitor.capabilities
                self._context.start_task(self._start())

    def _may_be_shown(self) -> bool:
        """Whether what it offers is known well enough to be looked at, without starting it."""
        return self.inventory.locked or (self.state not in ALIVE and self.inventory.is_fresh(self._fresh_s))

    def _turn_away(self, visitor: ReadyWaiter, problem: Failure) -> None:
        """Nobody is let in any more: whoever comes late is sent to the child that is in this one's place."""
        if self.successor is None:
            visitor.on_failed(problem)
        else:
            visitor.rebind(self.successor)
            self.successor.acquire(visitor)

    @property
    def busy(self) -> bool:
        """Whether anybody waits for it, or for an answer of it."""
        changing = self.state in (State.STARTING, State.STOPPING)
        return changing or bool(self._waiting) or (self.peer is not None and self.peer.busy)

    def retire(self, successor: Child | None) -> None:
        """The config has another in its place, or none: it ends when its work is done."""
        self.successor = successor

    def processes(self, home: object = None) -> list[Child]:
        """The processes behind it: for one host, or all. Where it is shared there is one."""
        return [self]

    def release_session(self, home: object) -> None:
        """A host has gone; what is shared stays."""

    def register_secrets(self, hidden: list[str]) -> None:
        """Arguments of a call that must not be shown."""
        self._context.redactor.register_recent(hidden)

    def redact(self, problem: Failure) -> Failure:
        """The failure as it may be shown."""
        return self._context.redactor.redact_failure(problem)

    def record_failure(self, problem: Failure, principal: str) -> Failure:
        """The same for what became of somebody's call, remembered where anybody may ask for it."""
        shown = self.redact(problem)
        if self._context.recent_errors is not None:
            self._context.recent_errors.note(shown, principal)
        return shown

    def redact_body(self, body: Raw | bytes) -> bytes:
        """A body of the child's own that is no result, without the secrets that we know."""
        return self._context.redactor.mask_registered_json(bytes(body))

    def cancel_wait(self, visitor: ReadyWaiter) -> None:
        """The visitor no longer waits."""
        self._waiting.discard(visitor)

    def unavailable_reason(self) -> Failure:
        """Why a visitor that was let in cannot send its call after all."""
        if self.peer is None:
            gone = failure("child_crashed", f"Child '{self.name}' is gone.", child=self.name)
            return self._closing or self.last_failure or gone
        return failure("child_busy", f"Child '{self.name}' does not read its input.", child=self.name)

    def refresh_tools_for(self, subtool: str, visitor: ReadyWaiter) -> None:
        """Let the visitor in when it is known whether there is such a subtool by now."""
        now = self._context.loop.time()
        if not self._missing and now - self._looked_for.get(subtool, -MISSED_S) < MISSED_S:
            visitor.on_ready(self)
            return
        if len(self._looked_for) >= MOST_MISSED:
            self._looked_for.clear()
        self._looked_for[subtool] = now
        self.refresh_tools(visitor)

    def refresh_tools(self, visitor: ReadyWaiter) -> None:
        """Let the visitor in when the list of tools has been fetched again. Single flight, however many want one."""
        self._missing.append(visitor)
        if len(self._missing) == 1:
            self._context.start_task(self._relist())

    def set_log_level(self, level: str) -> None:
        """Log messages the host wants from now on; told to the child where it can be, now or when it starts."""
        self._log_level = level
        knowledge = self.inventory.snapshot
        able = knowledge is not None and "logging" in knowledge.capabilities
        if self.peer is not None and not self.is_stateless and able:
            params = b'{"level":%b}' % encode(level)
            self.peer.send(AwaitedRequest(self._context.loop, "logging/setLevel", params, self.timeout_s))
            self._answers_at_start += 1  # its answer says nothing of whether calls are answered

    def lower_log_level(self, level: str) -> None:
        """One request wants messages from this level on, whatever the others want."""
        if not self._log_level or LEVELS.index(level) < LEVELS.index(self._log_level):
            self.set_log_level(level)

    def sweep(self, now: float) -> None:
        """Called now and then: notice quiet, and stop a child that has been idle for long."""
        self._review()
        if self.state not in (State.READY, State.IDLE, State.PROBATION):
            return
        if self.requests != self._visits_seen or (self.peer and self.peer.busy) or self.subscriptions.uris:
            self._visits_seen = self.requests
            self._quiet_since = now
        elif self.state is State.READY:
            self._apply(LifecycleEvent.QUIET)
        elif now - self._quiet_since >= self._timeouts.idle_ms / 1000:
            self._apply(LifecycleEvent.EXPIRE)
            self._context.start_task(self._stop_idle())

    def is_disposable(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten."""
        return self.state not in ALIVE and self._retry_at <= now

    async def close(self, problem: Failure | None = None) -> None:
        """Stop for good. A handshake under way fails with its connection; a process that is not there yet is left."""
        self._closing = problem or failure(
            "shutting_down", f"Switchboard is stopping; child '{self.name}' with it.", child=self.name
        )
        self._waiting.send_away(self._closing)
        if self._launching is not None:
            self._launching.cancel()
        if self._connection is not None:
            self._note("stopped")
        await self._drop_connection(self._closing)

    def on_exit(self, connection: Connection, problem: Failure, unheard: list[ReadyWaiter]) -> None:
        """The running child crashed. While it was starting, the start itself notices."""
        if connection is self._connection and self.state in RUNNING:
            self._review()
            self.failures += problem.code not in HARMLESS
            self._context.log.warning("child.crashed", child=self.name, problem=problem.message)
            self._fall_back(problem)
        for visitor in unheard:
            self.acquire(visitor)

    def on_notification(self, connection: Connection, message: RpcMessage) -> None:
        """A notification from the child."""
        if message.method in CHANGES:
            self.inventory.on_list_changed(connection, message.method)
        elif message.method == ACKNOWLEDGED:
            self.subscriptions.acknowledged(message)
        elif self._context.events is not None:
            self._context.events.on_child_notification(self, connection.peer, message)

    def on_request(self, connection: Connection, message: RpcMessage) -> None:
        """The child asks its client something."""
        if self._context.events is not None:
            self._context.events.on_child_request(self, connection.peer, message)

    def _missed(self, method: str, params: bytes) -> None:
        """Something may have changed while the child could not tell."""
        if self._connection is not None:
            self.on_notification(self._connection, RpcMessage(method=method, params=Raw(params)))

    def _give_up(self, problem: Failure) -> None:
        connection = self._connection
        self._fall_back(problem)
        if connection is not None:
            self._context.start_task(connection.stop(problem))

    async def _start(self) -> None:
        if self._replicas is not None and await self._is_given_up_elsewhere(self._replicas):
            self._apply(LifecycleEvent.TOLD)
            self._waiting.send_away(self._rejection())
            return
        loop = self._context.loop
        began = loop.time()
        self._waiting.start_telling()
        slow = loop.call_later(self._rules.spawn_warn_s, self._tell_slow_start)
        try:
            outcome = self._closing or await self._connect_in_time()
            if not isinstance(outcome, Failure):
                self.inventory.update(outcome)
        except Exception as problem:  # noqa: BLE001 - visitors wait for an answer, whatever went wrong
            self._context.log.error("internal", child=self.name, problem=repr(problem))
            outcome = failure("internal", f"Child '{self.name}' could not be started.", child=self.name)
        finally:
            self._waiting.stop_telling()
            slow.cancel()
        if self._closing is not None:
            outcome = self._closing
        if isinstance(outcome, Failure):
            outcome = self.redact(outcome)
            if self._closing is None:
                self._context.log.warning("child.start_failed", child=self.name, problem=outcome.message)
            self.failures += 1
            await self._drop_connection(outcome)
            self._fall_back(outcome)
            return
        assert self._connection is not None
        self.peer, self.last_session = self._connection.peer, None
        self._answers_at_start = self.peer.response_count
        self._context.log.info(
            "child.started",
            child=self.name,
            pid=self.pid,
            tools=len(self.inventory.tools),
            ms=round((loop.time() - began) * 1000),
        )
        self._note("started", loop.time() - began)
        if self._log_level:
            self.set_log_level(self._log_level)
        self._apply(LifecycleEvent.UP_AGAIN if self.failures else LifecycleEvent.UP)
        self.subscriptions.begin(self.peer, outcome.capabilities, stateless=self.is_stateless)
        self._waiting.let_all_in()
        await self.inventory.fetch_remaining(self._connection)

    def _tell_slow_start(self) -> None:
        seconds = self._rules.spawn_warn_s
        self._context.log.warning("child.start_slow", child=self.name, seconds=seconds)

    def _fall_back(self, problem: Failure) -> None:
        """After a failure: wait, give up for a while, or wait for a person."""
        self._connection = self.peer = None
        self.subscriptions.end()
        self.last_failure = problem
        if problem.code in FAULTS and self.state is State.STARTING:
            event, wait_s = LifecycleEvent.FAULT, FAULT_RECHECK_S
        else:
            judged = setback(self.failures, self._rules)
            event, wait_s = judged.event, judged.wait_s
        self._retry_at = self._context.loop.time() + wait_s
        self._apply(event)
        self._note("quarantined" if self.state is State.QUARANTINED else problem.code)
        if self.state is State.QUARANTINED and self._replicas is not None:
            self._replicas.gave_up(self.spec, self.failures, self.redact(problem).message, wait_s)
        if self._context.recent_errors is not None:
            self._context.recent_errors.note(self.redact(problem))
        self._waiting.send_away(problem)

    async def _stop_idle(self) -> None:
        self._context.log.info("child.idle", child=self.name)
        self._note("stopped")
        await self._drop_connection(
            failure("child_crashed", f"Child '{self.name}' was stopped, being idle.", child=self.name)
        )
        self._apply(LifecycleEvent.GONE)
        for visitor in self._waiting.empty():
            self.acquire(visitor)

    async def _relist(self) -> None:
        try:
            if self._connection is not None and self.peer is not None:
                await self.inventory.fetch(self._connection, "tools/list")
        finally:
            visitors, self._missing = self._missing, []
            for visitor in visitors:
                if self.peer is None:
                    visitor.on_failed(self.unavailable_reason())
                else:
                    self._waiting.let_in(visitor)
