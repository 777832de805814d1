"""Timeouts of one child: how long a call may take, and how long a start may take."""

from __future__ import annotations

from switchboard_mcp.config.models import ChildSpec, Config

# What these run may have to be downloaded at any start.
PACKAGE_RUNNERS = frozenset(
    {"npx", "bunx", "uvx", "pipx", "docker", "podman", "pnpm", "yarn", "bun", "uv", "deno"}
)


def call_timeout_s(spec: ChildSpec, config: Config) -> float:
    """Return the timeout of one call: the suite's setting, else the child's own, else `timeouts.rpcMs`."""
    suite = config.suites.get(spec.name)
    timeout_ms = (suite and suite.rpc_ms) or spec.rpc_timeout_ms or config.timeouts.rpc_ms
    return timeout_ms / 1000


def start_timeout_ms(command: str, known: bool, child_spawn_ms: int, call_timeout_ms: int) -> int:
    """Return the timeout of one start. A package runner, or a child never seen, may have to download first."""
    runner = command.replace("\\", "/").rpartition("/")[2].removesuffix(".cmd").removesuffix(".exe")
    if known and runner not in PACKAGE_RUNNERS:
        return child_spawn_ms
    return max(child_spawn_ms, call_timeout_ms)
