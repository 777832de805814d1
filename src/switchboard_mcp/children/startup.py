"""Starts a child: expands its variables, launches its process or connects to its URL, and performs the handshake.

Tries the protocol version family of the host first and falls back to the other. What happens to a child that could
not be started is decided in `health`; `child` does the rest.
"""

from __future__ import annotations

from asyncio import Task, current_task, timeout
from types import ModuleType
from typing import TYPE_CHECKING

from switchboard_mcp.children.catalog import MAX_AGE_S, ServerSnapshot, capability_set
from switchboard_mcp.children.connection import ChildTransport, Connection
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.handshake import UnsupportedVersion
from switchboard_mcp.children.launch import launch
from switchboard_mcp.children.process_transport import ProcessTransport
from switchboard_mcp.children.timeouts import longest_start_after_timeout, start_timeout_ms
from switchboard_mcp.children.waiter import EphemeralOwner
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import SandboxWords
from switchboard_mcp.config.variables import expand, keyring_variables, secret_values
from switchboard_mcp.errors import RUN_DOCTOR, Failure, failure, shell_word
from switchboard_mcp.protocol import versions
from switchboard_mcp.system.work_thread import run_alone

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.policy.launch.rules import ApprovedLaunch
    from switchboard_mcp.sandbox.refusals import Refusals

# Long enough for a person to type the password of the keyring.
KEYRING_TIMEOUT_S = 60.0


# Types of remote servers that one URL may be mistaken for, and how a mistake shows.
HTTP_TYPES = frozenset({"http", "sse"})
MAYBE_WRONG_TYPE = frozenset({"child_http_error", "child_protocol", "child_start_timeout"})


class Startup:
    """Starts one child, as often as it has to be restarted. Connections are handed to the child as they are made."""

    def __init__(self, child: Child, context: ChildContext, spawn_ms: int, sandbox: SandboxWords) -> None:
        self._child = child
        self._context = context
        self._spawn_ms = spawn_ms
        self._sandbox = sandbox
        self.refusals: Refusals | None = None  # of all processes of a child with a sandbox
        self._capabilities = b"{}"
        self._needs_handshake = False  # it exits on any first request but `initialize`
        self._launching: Task[object] | None = None
        self._approved: ApprovedLaunch | None = None

    async def run(
        self, stateless_first: bool, capabilities: bytes, limit_s: float
    ) -> ServerSnapshot | Failure:
        """Start the child and return what it offers. `limit_s` covers all attempts together; 0 means no limit."""
        self._capabilities = capabilities
        if not limit_s:
            return await self._start(stateless_first)
        try:
            async with timeout(limit_s):
                return await self._start(stateless_first)
        except TimeoutError:
            name, connection = self._child.name, self._child.connection
            framing = await connection.find_framing_problem() if connection is not None else None
            remedy = "Raise health.spawnFailMs"
            if (
                self._child.inventory.governed
            ):  # where that is an approved setting, and counts for all children
                remedy = f"`switchboard lock --accept {shell_word(name)}` measures its start and approves it"
            return framing or failure(
                "child_start_timeout",
                f"Child '{name}' was not ready within {limit_s:g} s, the limit of the health gate.",
                child=name,
                hint=f"{remedy}, or {RUN_DOCTOR}.",
                stderr=connection.stderr_tail() if connection is not None else [],
            )

    def cancel_launch(self) -> None:
        """Stop waiting for a process that is being launched."""
        if self._launching is not None:
            self._launching.cancel()

    def announced_capabilities(self, host: bytes) -> bytes:
        """Return the client capabilities to declare to the child, if its host has these."""
        owner, context = self._child.owner, self._context
        # The hosts of one principal may differ in what they can do, so they count as several.
        shared = owner is None or isinstance(owner, EphemeralOwner)
        return context.full_capabilities or (shared and context.shared_capabilities) or host

    async def open_transport(self, spec: ChildSpec, limit_s: float) -> ChildTransport | Failure:
        """Launch the process of a local child, or connect to a remote one."""
        if spec.kind != "stdio":
            connected: ChildTransport | Failure = await _remote_transport().connect(spec, self._context)
            return connected
        self._launching = current_task()
        try:
            launched = await launch(spec, self._context, limit_s, self._sandbox)
        finally:
            self._launching = None
        if isinstance(launched, Failure):
            return launched
        self._approved = launched.approved
        if launched.sandbox is not None:
            if self.refusals is not None:
                launched.sandbox.count_with(self.refusals)
            self.refusals = launched.sandbox.refusals
        return ProcessTransport(self._context, spec, launched.process, launched.sandbox)

    async def _start(self, stateless_first: bool) -> ServerSnapshot | Failure:
        child, environ = self._child, self._context.environ
        spec = await self._expand(child.spec)
        if isinstance(spec, Failure):
            return spec
        for secret in secret_values(child.spec, environ):
            self._context.redactor.register(secret)
        inventory, call_timeout_ms = child.inventory, int(child.call_timeout_s * 1000)
        longest_ms = inventory.longest_start_ms
        limit_ms = start_timeout_ms(spec.command, longest_ms, self._spawn_ms, call_timeout_ms)
        outcome = await self._try_versions(spec, limit_ms / 1000, stateless_first)
        if isinstance(outcome, Failure) and outcome.code == "child_start_timeout":
            inventory.remember_slow_start(longest_start_after_timeout(longest_ms, limit_ms, call_timeout_ms))
        if spec.kind in HTTP_TYPES and isinstance(outcome, Failure) and outcome.code in MAYBE_WRONG_TYPE:
            return await _remote_transport().find_wrong_type(spec, self._context) or outcome
        return outcome

    async def _try_versions(
        self, spec: ChildSpec, limit_s: float, stateless_first: bool
    ) -> ServerSnapshot | Failure:
        child = self._child
        stateless_first = stateless_first and not self._needs_handshake
        version = self._remembered_version() or versions.LATEST_LEGACY
        tried: set[tuple[bool, str]] = set()
        while True:
            tried.add((stateless_first, version))
            outcome = await self._connect(spec, limit_s, stateless_first, version)
            if isinstance(outcome, UnsupportedVersion):
                problem, stateless_first = outcome.problem, not outcome.version
                version = outcome.version or version
            elif stateless_first and isinstance(outcome, Failure) and outcome.code == "child_start_failed":
                # Some servers exit on any first request but `initialize`. One that exits for another reason will do
                # so again, so the second attempt hides nothing.
                problem, stateless_first = outcome, False
            else:
                return outcome
            if (stateless_first, version) in tried:
                return problem
            self._needs_handshake = not stateless_first
            await child.drop_connection(problem)

    async def _expand(self, spec: ChildSpec) -> ChildSpec | Failure:
        environ = self._context.environ
        if not keyring_variables(spec, environ):
            return expand(spec, environ)
        try:
            async with timeout(KEYRING_TIMEOUT_S):
                # The keyring may wait for the user to unlock it.
                return await run_alone(lambda: expand(spec, environ))
        except TimeoutError:
            limit = f"within {KEYRING_TIMEOUT_S:g} s"
            message = f"Child '{spec.name}' cannot start: the system keyring did not answer {limit}."
            return failure("keyring_unavailable", message, child=spec.name)

    def _remembered_version(self) -> str:
        """Return the version that the child accepted after refusing the newest, unless its program has changed."""
        catalog, spec = self._context.catalog, self._child.spec
        snapshot = catalog.get(spec)
        if snapshot is None or not snapshot.requested:
            return ""
        if not catalog.is_fresh(spec, MAX_AGE_S, snapshot.client):
            return ""
        return versions.newest_legacy([snapshot.requested])

    async def _connect(
        self, spec: ChildSpec, limit_s: float, stateless_first: bool, version: str
    ) -> ServerSnapshot | Failure | UnsupportedVersion:
        child = self._child
        transport = await child.open_transport(spec, limit_s)
        if isinstance(transport, Failure):
            return transport
        connection = child.connection = Connection(self._context, spec, transport, child)
        if child.closing is not None:
            return child.closing
        capabilities = self.announced_capabilities(self._capabilities)
        outcome = await connection.open(
            limit_s, capabilities, stateless_first=stateless_first, version=version
        )
        if not isinstance(outcome, ServerSnapshot):
            return outcome
        outcome.client = capability_set(capabilities)
        return self._find_tampering(spec) or outcome

    def _find_tampering(self, spec: ChildSpec) -> Failure | None:
        """Check that no approved file was replaced between its check and its use; by now all have been read."""
        policy, approved = self._context.launch_policy, self._approved
        return policy.check_unchanged(spec, approved) if policy is not None and approved is not None else None


def _remote_transport() -> ModuleType:
    """Return the module for remote children, which is loaded only if there is one."""
    from switchboard_mcp.children import remote_transport

    return remote_transport
