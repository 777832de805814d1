"""One child MCP server: starts it on demand, restarts it after failures, stops it when idle.

Performs what the table in `children.lifecycle` decides. Starts are single flight: however many callers arrive while
the child starts, one process is started. Composed of `HealthTracker` (state and failures), `Startup` (launch and
handshake), `StartQueue` (waiting callers), `Probe`, `Inventory` (tools, prompts, resources) and `ChildSubscriptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.children.connection import ChildTransport, Connection
from switchboard_mcp.children.context import ChildContext, ResultTypes
from switchboard_mcp.children.health import RUNNING, ChildEvent, HealthTracker
from switchboard_mcp.children.inventory import CHANGES, RESOURCES, TEMPLATES, Inventory
from switchboard_mcp.children.lifecycle import Action, Health, LifecycleEvent, State
from switchboard_mcp.children.probe import Probe
from switchboard_mcp.children.resource_subscriptions import ACKNOWLEDGED, ChildSubscriptions
from switchboard_mcp.children.roots_question import RootsQuestion
from switchboard_mcp.children.start_queue import StartQueue
from switchboard_mcp.children.startup import Startup
from switchboard_mcp.children.timeouts import call_timeout_s, is_start_hung
from switchboard_mcp.children.waiter import FutureWaiter, HostGroup, ReadyWaiter
from switchboard_mcp.config.models import ChildSpec, Config, sandbox_of
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.client_requests import has_roots
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.message_meta import LEVELS
from switchboard_mcp.system.user_folders import workspace_state_folder
from switchboard_mcp.transport.rpc import AwaitedRequest, Peer

READY = State.READY  # looked up once: enum member access through the class is slow
HAS_PROCESS = RUNNING | {State.STARTING, State.STOPPING}
# A child that does not read its stdin must not fill our memory: beyond this, calls to it are refused.
MAX_BACKLOG = 96 * 1024 * 1024
# Tasks that keep a child from being idle.
MAX_RUNNING_TASKS = 1_000
# A call to an unknown subtool refreshes the tool list, but at most this often per name: callers may loop.
REFRESH_INTERVAL_S = 2.0
# An error beyond this is not meant to be read. Masking it takes up to 1 s for 1 MiB.
MAX_ERROR_BYTES = 64 * 1024
MAX_ERROR_CHARS = 4_000
MAX_REFRESHED_NAMES = 100
# Connection losses that are not the child's fault: the next call restarts it at once.
HARMLESS = frozenset({"message_too_large"})


class Child:
    """One child MCP server and its current run, if any.

    `owner` is the session that a per-session child is kept for. `last_session` used the current run last, `users` are
    the connected ones that did. `requests` counts acquisitions; `lookups` counts those that were not calls. `closing`
    is set once the child accepts no more callers, `successor` if a reload has replaced it.
    """

    per_session = False  # each host session has its own process
    was_shared = False  # more than one session has used it, in any run
    _first_user: object = None

    inventory: Inventory

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext) -> None:
        self.spec = spec
        self.call_timeout_s = call_timeout_s(spec, config)
        self.owner: object = None
        self.last_session: object = None
        self._had_several_users = False
        self.users: dict[object, None] = {}
        self.successor: Child | None = None
        self.requests = 0
        self.lookups = 0
        self.connection: Connection | None = None
        self.peer: Peer | None = None  # that of the connection, while calls may be sent
        # While governed mode is disabled, callers are refused as if the child were closing.
        self.closing = context.disabled and replace(context.disabled, child=spec.name)
        self.inventory = Inventory(spec, config, context, self.call_timeout_s)
        self.roots = RootsQuestion()
        self._running_tasks: dict[str, float] = {}  # when each will have expired, by its id
        self.subscriptions = ChildSubscriptions(context, self.call_timeout_s, self._replay)
        self._context = context
        self._health = HealthTracker(spec, config, context, context.log.about(self))
        self.sandbox = sandbox_of(spec.name, config)
        self.is_sandboxed = self.sandbox.is_on and spec.kind == "stdio" and not spec.wraps
        self._startup = Startup(self, context, config.timeouts.child_spawn_ms, self.sandbox)
        self._queue = StartQueue(self, context)
        self._probe = Probe(self, context, self._health.rules.probe_s)
        self._idle_s = config.timeouts.idle_ms / 1000
        self._fresh_s = config.introspection.fresh_ms / 1000
        self._idle_since = 0.0
        self._requests_seen = 0
        self._log_level = ""
        self._start_began: float | None = None
        self._refresh_waiters: dict[str, list[ReadyWaiter]] = {}  # by list
        self._refreshed_at: dict[
            tuple[str, str], float
        ] = {}  # time of the last refresh, by list and unknown item

    @property
    def name(self) -> str:
        """The child's name."""
        return self.spec.name

    @property
    def _log(self) -> Log:
        """The log for lines about this process, which are for its users."""
        return self._context.log.about(self)

    @property
    def result_types(self) -> ResultTypes | None:
        """Learns the types of results for programs; None unless they are enabled."""
        return self._context.result_types

    @property
    def pid(self) -> int:
        """The process id, or 0."""
        return self.connection.pid if self.connection else 0

    @property
    def is_shared(self) -> bool:
        """True if the process is not kept for one session or principal."""
        return self.owner is None or isinstance(self.owner, HostGroup)

    @property
    def is_stateless(self) -> bool:
        """True if this run speaks a protocol version without handshakes."""
        return self.inventory.is_stateless

    @property
    def snapshot(self) -> ServerSnapshot | None:
        """Everything known about the server, from this run or an earlier one."""
        return self.inventory.snapshot

    @property
    def state(self) -> State:
        """The lifecycle state."""
        return self._health.state

    @property
    def health(self) -> Health:
        """The current health."""
        return self._health.health

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._health.failures

    @property
    def last_failure(self) -> Failure | None:
        """The latest failure, if there was one."""
        return self._health.last_failure

    @property
    def retry_after_ms(self) -> int:
        """Milliseconds until a call that would be rejected now may be retried; 0 if none would be."""
        return self._health.retry_after_ms

    @property
    def busy(self) -> bool:
        """True if a caller waits for the child or for one of its answers."""
        changing = self.state in (State.STARTING, State.STOPPING)
        return changing or bool(self._queue) or (self.peer is not None and self.peer.busy)

    # Callers

    def acquire(self, waiter: ReadyWaiter) -> None:
        """Call the waiter back once the child is ready, starting it if needed."""
        self.requests += 1
        if self._health.state is READY:
            if self.roots.has_fallback or self.roots.holds_calls:
                self._hold_for_roots(waiter)
            else:
                waiter.on_ready(self)
            return
        blocked = self.closing or self.inventory.blocked_reason()
        if blocked is not None:
            self._redirect(waiter, blocked)
            return
        if waiter.catalog_is_enough and self._catalog_is_enough(waiter):
            waiter.on_ready(self)
            return
        action = self._health.on_call()
        if action is Action.SEND:
            waiter.on_ready(self)
        elif action is Action.REJECT:
            waiter.on_failed(self._health.rejection())
        else:
            self._queue.add(waiter)
            if action is Action.START:
                self._context.start_task(self._start(waiter.is_stateless, waiter.capabilities))

    def _hold_for_roots(self, waiter: ReadyWaiter) -> None:
        """Send a call once the child has the roots of a host, if its own can be asked for them."""
        if not has_roots(waiter.capabilities) or self.peer is None:
            waiter.on_ready(self)
            return
        asks_again, self.roots.has_fallback = self.roots.has_fallback, False
        self._queue.add(waiter)
        if asks_again:
            self.peer.notify("notifications/roots/list_changed")
        self._context.start_task(self._release_with_roots(waiter, asks_again=asks_again))

    async def _release_with_roots(self, waiter: ReadyWaiter, *, asks_again: bool) -> None:
        await self.roots.settle(asks_again=asks_again)
        if waiter not in self.waiters():
            return  # cancelled, or failed with the child
        self._queue.discard(waiter)
        if self.peer is None:
            waiter.on_failed(self.unavailable_reason())
        else:
            self._queue.release(waiter)

    def cancel_wait(self, waiter: ReadyWaiter) -> None:
        """Remove a waiter from the queue."""
        self._queue.discard(waiter)

    def _catalog_is_enough(self, waiter: ReadyWaiter) -> bool:
        """Return True if the inventory is known well enough to be listed without starting the child."""
        if self.inventory.locked:
            return True
        announced = self._startup.announced_capabilities(waiter.capabilities)
        return self.state not in HAS_PROCESS and self.inventory.is_fresh(self._fresh_s, announced)

    def _redirect(self, waiter: ReadyWaiter, problem: Failure) -> None:
        """Send the waiter to the successor, or fail it if there is none."""
        if self.successor is None:
            waiter.on_failed(problem)
        else:
            waiter.rebind(self.successor)
            self.successor.acquire(waiter)

    def unavailable_reason(self) -> Failure:
        """Return the failure of a call that cannot be sent although the child was ready."""
        if self.peer is None:
            gone = failure("child_crashed", f"Child '{self.name}' has exited.", child=self.name)
            return self.closing or self.last_failure or gone
        return failure("child_busy", f"Child '{self.name}' does not read its input.", child=self.name)

    def on_call_timeout(self) -> None:
        """Probe the child after a call timed out: it may be slow, or it may hang."""
        peer = self.peer
        if peer is not None and self.state in RUNNING and self._health.on_call_timeout() is Action.PROBE:
            self._probe.start(peer)

    def on_probe_result(self, *, alive: bool) -> bool:
        """Apply the result of a probe of this run. Return True to probe again."""
        if self.state not in RUNNING or self.peer is None:
            return False
        if alive:
            return self._health.on_probe_ok()
        problem = self._health.on_probe_failed()
        if problem is None:
            return True
        connection = self.connection
        self._fail(problem)
        if connection is not None:
            self._context.start_task(connection.stop(problem))
        return False

    # Sessions and processes

    def processes(self, owner: object = None) -> list[Child]:
        """Return the children with a process of their own: of one session, or all. A shared child has one."""
        return [self]

    def is_running(self, owner: object) -> bool:
        """Return True if the process that serves an owner can be sent messages."""
        return any(child.peer is not None for child in self.processes(owner))

    def sessions(self) -> set[object]:
        """Return the sessions that use this process, or wait for it."""
        return {*self.users, *(waiter.owner for waiter in self.waiters()), self.owner}

    def sole_user(self) -> object:
        """Return the session that this run was started for, as long as no other has used it or waits; or None."""
        owners = {waiter.owner for waiter in self.waiters()} | {self.last_session}
        owners.discard(None)
        return owners.pop() if len(owners) == 1 and not self._had_several_users else None

    def waiters(self) -> list[ReadyWaiter]:
        """Return the callers that wait for the start."""
        return self._queue.waiters()

    def note_user(self, session: object, *, remember: bool) -> None:
        """Note the session that uses the child now. It is remembered until `release_session`.

        Several remembered sessions take turns.
        """
        if self.last_session is not None and self.last_session is not session:
            self._had_several_users = True
            if self.connection is not None:
                self.connection.note_several_users()
        self.last_session = session
        if self._first_user is None:
            self._first_user = session
        elif self._first_user is not session:
            self.was_shared = True
        if remember:
            self.users[session] = None
            if len(self.users) > 1 and self.peer is not None:
                self.peer.take_turns()

    def release_session(self, owner: object) -> None:
        """Release what is kept for a session that has ended. A shared child keeps its name only."""
        self.users.pop(owner, None)

    def retire(self, successor: Child | None) -> None:
        """Redirect callers to the successor once this child closes; a reload has replaced or removed it."""
        self.successor = successor

    def is_disposable(self, now: float) -> bool:
        """Return True if the object can be dropped: it has no process and no restart is held back."""
        return self.state not in HAS_PROCESS and self._health.retry_at <= now

    # Secrets and errors

    def register_secrets(self, hidden: list[str]) -> None:
        """Redact these argument values of a call from now on."""
        self._context.redactor.register_recent(hidden)

    def redact(self, problem: Failure) -> Failure:
        """Return the failure without secrets."""
        return self._context.redactor.redact_failure(problem)

    def redact_body(self, body: Raw | bytes) -> bytes:
        """Return an error of the child without the known secrets. A large one loses its data: masking takes long."""
        data = bytes(body)
        if len(data) > MAX_ERROR_BYTES:
            data = jsonrpc.without_data(data, MAX_ERROR_CHARS)
        return self._context.redactor.mask_registered_json(data)

    def state_folder(self, kind: str) -> str:
        """Return the folder for what is kept about this workspace between runs; empty if there is none."""
        return workspace_state_folder(self._context.environ, kind, self._context.workspace)

    def explain_result(self, result: Raw) -> Raw | bytes:
        """Return a tool result; if it is an error that the child's sandbox explains, with that explanation."""
        running = self.connection.sandbox if self.connection is not None else None
        if running is None or len(result) > MAX_ERROR_BYTES or b'"isError"' not in bytes(result):
            return result
        return running.explain_result(bytes(result)) or result

    @property
    def history(self) -> Sequence[ChildEvent]:
        """The last changes of its state, oldest first."""
        return self._health.history

    @property
    def refusals_total(self) -> int:
        """The number of times its sandbox has refused something."""
        return self._startup.refusals.total if self._startup.refusals is not None else 0

    def newest_refusals(self, limit: int) -> list[tuple[str, int]]:
        """Return what its sandbox has refused, each with its remedy and count, without secrets."""
        if self._startup.refusals is None:
            return []
        clip = self._context.redactor.redact_and_clip
        newest = islice(self._startup.refusals.newest(), limit)
        return [(clip(denial.sentence(self.name), MAX_ERROR_CHARS), times) for denial, times in newest]

    def explain_error(self, text: str) -> str:
        """Return what the child's sandbox has to do with an error message, after a space; or an empty string."""
        running = self.connection.sandbox if self.connection is not None else None
        explanation = running.explanation(text) if running is not None else ""
        return f" {explanation}" if explanation else ""

    def explain_body(self, body: Raw | bytes) -> Raw | bytes:
        """Return a JSON-RPC error; if its sandbox explains it, with that explanation in its message."""
        running = self.connection.sandbox if self.connection is not None else None
        if running is None or len(body) > MAX_ERROR_BYTES:
            return body
        return running.explain_rpc_error(bytes(body)) or body

    def record_failure(self, problem: Failure, caller: object) -> Failure:
        """Add the failure of a call to the recent errors of its caller and return it without secrets."""
        shown = self.redact(problem)
        if self._context.recent_errors is not None:
            self._context.recent_errors.note(shown, caller)
        return shown

    # Tool list and log level

    def refresh_list_for(self, method: str, name: str, waiter: ReadyWaiter) -> None:
        """Fetch a list again since an item is not in it, then call the waiter back. Rate-limited per name."""
        now = self._context.loop.time()
        last = self._refreshed_at.get((method, name), -REFRESH_INTERVAL_S)
        if not self._refresh_waiters.get(method) and now - last < REFRESH_INTERVAL_S:
            waiter.on_ready(self)
            return
        if len(self._refreshed_at) >= MAX_REFRESHED_NAMES:
            self._refreshed_at.clear()
        self._refreshed_at[method, name] = now
        self.refresh_list(method, waiter)

    def refresh_list(self, method: str, waiter: ReadyWaiter) -> None:
        """Fetch a list again, then call the waiter back. Single flight."""
        waiters = self._refresh_waiters.setdefault(method, [])
        waiters.append(waiter)
        if len(waiters) == 1:
            self._context.start_task(self._refresh_list(method))

    async def _refresh_list(self, method: str) -> None:
        try:
            for listed in (method, TEMPLATES) if method == RESOURCES else (method,):
                if self.connection is not None and self.peer is not None and self.inventory.announces(listed):
                    await self.inventory.fetch(self.connection, listed)
        finally:
            for waiter in self._refresh_waiters.pop(method):
                if self.peer is None:
                    waiter.on_failed(self.unavailable_reason())
                else:
                    self._queue.release(waiter)

    def set_log_level(self, level: str) -> None:
        """Set the log level of this run and later ones, if the child supports logging."""
        if level != self._log_level:
            self._log_level = level
            self._send_log_level()

    def _send_log_level(self) -> None:
        snapshot = self.inventory.snapshot
        able = snapshot is not None and "logging" in snapshot.capabilities
        if self.peer is not None and not self.is_stateless and able:
            params = b'{"level":%b}' % encode(self._log_level)
            self.peer.send(
                AwaitedRequest(self._context.loop, "logging/setLevel", params, self.call_timeout_s)
            )
            self._health.discount_answer()

    def lower_log_level(self, level: str) -> None:
        """Lower the log level to `level`, unless it is lower already: other requests may want more."""
        if not self._log_level or LEVELS.index(level) < LEVELS.index(self._log_level):
            self.set_log_level(level)

    # Start and restart

    async def open_transport(self, spec: ChildSpec, limit_s: float) -> ChildTransport | Failure:
        """Open what carries the messages of a new run. In-process children override this."""
        return await self._startup.open_transport(spec, limit_s)

    def lift_backoff(self) -> None:
        """Let the next caller start the child regardless of back-off or quarantine."""
        self._health.retry_at = 0.0

    async def abort_start(self, problem: Failure) -> None:
        """End a handshake in progress with this failure, and stop its process."""
        if self.state is State.STARTING:
            await self.drop_connection(problem)

    async def start_now(self) -> Failure | None:
        """Start the child regardless of back-off or quarantine. Return the failure, if any."""
        waiter = FutureWaiter(self._context.loop)
        self.lift_backoff()
        self.lookups += 1  # not a call
        self.acquire(waiter)
        problem = await waiter.outcome
        return self.redact(problem) if problem is not None else None

    async def _start(self, stateless_first: bool, capabilities: bytes) -> None:
        loop, rules = self._context.loop, self._health.rules
        started_at = self._start_began = loop.time()
        self.roots.begin_run()
        self._queue.start_progress()
        slow = loop.call_later(rules.spawn_warn_s, self._log_slow_start)
        try:
            limit_s = rules.spawn_fail_s and max(rules.spawn_fail_s, self.inventory.approved_start_s)
            outcome = self.closing or await self._startup.run(stateless_first, capabilities, limit_s)
            if not isinstance(outcome, Failure):
                took_ms = max(1, round((loop.time() - started_at) * 1000))
                outcome.longest_start_ms = max(self.inventory.longest_start_ms, took_ms)
                await self.inventory.prepare(outcome)
                self.inventory.update(outcome)
        except Exception as problem:  # noqa: BLE001 - the waiters need an answer, whatever went wrong
            self._context.log.error("internal", child=self.name, problem=repr(problem))
            outcome = failure("internal", f"Child '{self.name}' could not be started.", child=self.name)
        finally:
            self._start_began = None
            self._queue.stop_progress()
            slow.cancel()
        if self.closing is not None:
            outcome = self.closing
        if isinstance(outcome, Failure):
            outcome = self.redact(outcome)
            if self.closing is None:
                self._log.warning("child.start_failed", child=self.name, problem=outcome.message)
            self._health.failures += 1
            await self.drop_connection(outcome)
            self._fail(outcome)
            return
        await self._serve(outcome, loop.time() - started_at)

    async def _serve(self, snapshot: ServerSnapshot, seconds: float) -> None:
        """Release the waiters of a child that has just started, then fetch the rest of its inventory."""
        assert self.connection is not None
        self.peer, self.last_session, self._had_several_users = self.connection.peer, None, False
        self.users.clear()
        self._health.begin_run(self.peer)
        self._log.info(
            "child.started",
            child=self.name,
            pid=self.pid,
            tools=len(self.inventory.tools),
            ms=round(seconds * 1000),
        )
        self._context.audit_child(self.name, "started", seconds)
        if self._log_level:
            self._send_log_level()
        self._health.mark_started(seconds)
        self.subscriptions.begin(self.peer, snapshot.capabilities, stateless=self.is_stateless)
        if self.roots.holds_calls and any(has_roots(waiter.capabilities) for waiter in self.waiters()):
            await self.roots.settle(asks_again=False)
        self._queue.release_all()
        await self.inventory.fetch_remaining(self.connection)

    def _log_slow_start(self) -> None:
        seconds = self._health.rules.spawn_warn_s
        self._log.warning("child.start_slow", child=self.name, seconds=seconds)

    def _fail(self, problem: Failure) -> None:
        """End a run that failed. The next call restarts the child, once a restart is permitted."""
        self._detach()
        self._health.fail(problem)
        if self._context.recent_errors is not None:
            self._context.recent_errors.note(self.redact(problem), None if self.is_shared else self.owner)
        self._queue.fail_all(problem)

    # Stop

    def sweep(self, now: float) -> None:
        """Stop the child if it has been idle for too long. Called periodically."""
        self._health.review()
        if self.state not in (State.READY, State.IDLE, State.PROBATION):
            return
        in_use = (
            (self.peer is not None and self.peer.busy)
            or self.subscriptions.uris
            or any(expires > now for expires in self._running_tasks.values())
        )
        if self.requests != self._requests_seen or in_use:
            self._requests_seen = self.requests
            self._idle_since = now
        elif self.state is State.READY:
            self._health.apply(LifecycleEvent.IDLE)
        elif now - self._idle_since >= self._idle_s:
            self._health.apply(LifecycleEvent.IDLE_TIMEOUT)
            self._context.start_task(self._stop_idle())

    def note_task(self, id: str, expires: float, *, ended: bool = False) -> None:
        """Record that a task runs, so that the child is not idle, or that it has ended. The oldest are forgotten."""
        self._running_tasks.pop(id, None)
        if not ended:
            self._running_tasks[id] = expires
            if len(self._running_tasks) > MAX_RUNNING_TASKS:
                del self._running_tasks[next(iter(self._running_tasks))]

    async def stop_now(self, stopped_by: str) -> Failure | None:
        """Stop the child on request: calls in progress fail, and the next call restarts it.

        Returns a failure if it cannot be stopped now.
        """
        if self.state is State.STARTING:
            message = f"Child '{self.name}' is starting. Try again when it has started."
            return failure("child_busy", message, child=self.name)
        problem = failure(
            "child_crashed", f"Child '{self.name}' was stopped by an operator.", child=self.name
        )
        if self.state is State.READY:
            self._health.apply(LifecycleEvent.IDLE)
        if self.state in (State.IDLE, State.PROBATION):
            self._health.apply(LifecycleEvent.IDLE_TIMEOUT)
            self._context.log.info("child.stopped", child=self.name, by=stopped_by)
            await self._stop(problem)
        elif self.state is State.UNHEALTHY:
            connection = self.connection
            self._fail(problem)
            if connection is not None:
                await connection.stop(problem)
        return None

    async def _stop_idle(self) -> None:
        self._log.info("child.idle", child=self.name)
        message = f"Child '{self.name}' was stopped because it was idle."
        await self._stop(failure("child_crashed", message, child=self.name))

    async def _stop(self, problem: Failure) -> None:
        """Run the shutdown sequence, then restart the child if calls were queued meanwhile."""
        self._context.audit_child(self.name, "stopped")
        await self.drop_connection(problem)
        self._health.apply(LifecycleEvent.EXITED)
        for waiter in self._queue.drain():
            self.acquire(waiter)

    def abandon_hung_start(self, host_left_at: float, *, for_good: bool) -> None:
        """Close the child, or end its start, if that takes longer than a host that has left may want to wait."""
        began, longest_s = self._start_began, self.inventory.longest_start_ms / 1000
        if began is None or self.closing is not None:
            return
        if is_start_hung(began, host_left_at, self._context.loop.time(), longest_s):
            end = self.close() if for_good else self.abort_start(self._shutting_down())
            self._context.start_task(end)

    def _shutting_down(self) -> Failure:
        message = f"Switchboard is stopping, and child '{self.name}' with it."
        return failure("shutting_down", message, child=self.name)

    async def close(self, problem: Failure | None = None) -> None:
        """Stop for good. A handshake in progress fails with its connection; a launch in progress is cancelled."""
        self.closing = problem or self._shutting_down()
        self._queue.fail_all(self.closing)
        self._startup.cancel_launch()
        if self.connection is not None:
            self._context.audit_child(self.name, "stopped")
        await self.drop_connection(self.closing)

    async def drop_connection(self, problem: Failure) -> None:
        """Stop the connection, if any. Pending calls fail with the problem."""
        connection = self.connection
        self._detach()
        if connection is not None:
            await connection.stop(problem)

    def _detach(self) -> None:
        self.connection = self.peer = None
        self._health.end_run()
        self.subscriptions.end()
        self._running_tasks.clear()

    # Messages and events of the connection

    def on_exit(self, connection: Connection, problem: Failure, unsent: list[ReadyWaiter]) -> None:
        """Handle the crash of a running child. During a start, the start itself notices."""
        if connection is self.connection and self.state in RUNNING:
            self._health.review()
            self._health.failures += problem.code not in HARMLESS
            self._log.warning("child.crashed", child=self.name, problem=problem.message)
            self._fail(problem)
        for waiter in unsent:
            self.acquire(waiter)

    def on_notification(self, connection: Connection, message: RpcMessage) -> None:
        """Handle a notification of the child."""
        if message.method in CHANGES:
            self.inventory.on_list_changed(connection, message.method)
        elif message.method == ACKNOWLEDGED:
            self.subscriptions.acknowledged(message)
        elif self._context.events is not None:
            self._context.events.on_child_notification(self, connection.peer, message)

    def on_request(self, connection: Connection, message: RpcMessage) -> None:
        """Handle a request of the child to its client."""
        if self._context.events is not None:
            self._context.events.on_child_request(self, connection.peer, message)

    def _replay(self, method: str, params: bytes) -> None:
        """Handle a notification that may have been missed while no subscription was active."""
        if self.connection is not None:
            self.on_notification(self.connection, RpcMessage(method=method, params=Raw(params)))
