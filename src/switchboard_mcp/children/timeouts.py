"""Timeouts of one child: how long a call may take, and how long a start may take."""

from __future__ import annotations

from switchboard_mcp.config.models import ChildSpec, Config

# What these run may have to be downloaded at any start.
PACKAGE_RUNNERS = frozenset(
    {"npx", "bunx", "uvx", "pipx", "docker", "podman", "pnpm", "yarn", "bun", "uv", "deno"}
)

# A start on a busy machine, without a network or with a cold disk takes several times as long as a usual one.
START_MARGIN = 4

# A script that pipes requests ends its input within this time of the last one.
SCRIPT_S = 0.25
# A start that a script waits for gets this long, or twice the longest one seen.
FINAL_START_S = 5.0


def call_timeout_s(spec: ChildSpec, config: Config) -> float:
    """Return the timeout of one call: the suite's setting, else the child's own, else `timeouts.rpcMs`."""
    suite = config.suites.get(spec.name)
    timeout_ms = (suite and suite.rpc_ms) or spec.rpc_timeout_ms or config.timeouts.rpc_ms
    return timeout_ms / 1000


def start_timeout_ms(command: str, longest_ms: int, child_spawn_ms: int, call_timeout_ms: int) -> int:
    """Return the timeout of one start. A package runner, or a child never seen, may have to download first.

    `longest_ms` is the longest start that was seen, 0 for none: the limit leaves room for several times as much.
    """
    runner = command.replace("\\", "/").rpartition("/")[2].removesuffix(".cmd").removesuffix(".exe")
    limit_ms = max(child_spawn_ms, START_MARGIN * longest_ms)
    if longest_ms and runner not in PACKAGE_RUNNERS:
        return limit_ms
    return max(limit_ms, call_timeout_ms)


def is_start_hung(began: float, host_left_at: float, now: float, longest_s: float) -> bool:
    """Return True if a start is not worth waiting for once its host has closed the connection.

    A host that waited before it left wants no answer. One that left with its last request may be a script.
    """
    if host_left_at - began > SCRIPT_S:
        return True
    return now - began > max(FINAL_START_S, 2 * longest_s)


def longest_start_after_timeout(longest_ms: int, limit_ms: int, call_timeout_ms: int) -> int:
    """Return the longest start to remember after one that took more than its limit.

    The next one gets several times that limit, up to the timeout of a call: a child that hangs must not get ever more.
    """
    return max(longest_ms, min(limit_ms, call_timeout_ms // START_MARGIN))
