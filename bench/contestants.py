"""The contestants: the command of each, and the request that calls its echo.

Owns command lines and request templates. It starts nothing and measures nothing.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.report import Options

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
CHILD_MARKER = "echo_child.py"
CHILD = [sys.executable, str(HERE / CHILD_MARKER)]
PLAIN = '{"name":"echo","arguments":{"message":%s}}'
SUITE = '{"name":"echo_suite","arguments":{"action":"call","subtool":"echo","args":{"message":%s}}}'


@dataclass(frozen=True)
class Contestant:
    """One way from a client to the echo child."""

    key: str
    title: str
    argv: list[str]
    tool: str = "echo"
    params: str = PLAIN
    cwd: Path | None = None
    env: dict[str, str] = field(default_factory=dict)

    def call(self, number: int, message: str) -> bytes:
        params = self.params % msgspec.json.encode(message).decode()
        return f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}\n'.encode()


def environment() -> dict[str, str]:
    """Return our environment without variables that change how Python runs, and without the broker.

    Without bytecode on disk, a start would measure compiling for contestants without cached bytecode;
    without buffers, a proxy that prints would be slower than for its users. CPU time and memory are those of the
    process that was started; `bench.broker` measures sessions that share one.
    """
    switches = (
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "PYTHONOPTIMIZE",
        "PYTHONDEVMODE",
        "PYTHONASYNCIODEBUG",
    )
    kept = {name: value for name, value in os.environ.items() if name not in switches}
    return {**kept, "SWITCHBOARD_BROKER": "off"}


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def has_switchboard() -> bool:
    return (
        installed("switchboard_mcp.__main__")
        if installed("switchboard_mcp")
        else (SOURCE / "switchboard_mcp/__main__.py").exists()
    )


def make_workspace(folder: Path, children: int) -> Path:
    """Create a workspace with `children` children: the echo child, and others that are never started."""
    names = ["echo", *(f"other{number:03d}" for number in range(1, children))]
    for name in names:
        place = folder / "mcps" / name
        place.mkdir(parents=True)
        spec = {
            "name": name,
            "description": f"Answers with what it is told ({name}).",
            "command": {"cmd": CHILD[0], "args": CHILD[1:]},
        }
        (place / ".mcp.json").write_bytes(msgspec.json.encode(spec))
    return folder


def without_uvloop(folder: Path) -> Path:
    """Return a folder that hides uvloop from a Python with it in its path; Switchboard uses uvloop if it finds it."""
    hidden = folder / "without-uvloop"
    hidden.mkdir(exist_ok=True)
    (hidden / "uvloop.py").write_text("raise ImportError('hidden for this measurement')\n")
    return hidden


def switchboard(key: str, title: str, workspace: Path, *, uvloop: bool) -> Contestant:
    path = [] if uvloop or not installed("uvloop") else [str(without_uvloop(workspace))]
    if not installed("switchboard_mcp"):
        path.append(str(SOURCE))
    env = (
        {"PYTHONPATH": os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])])}
        if path
        else {}
    )
    argv = [sys.executable, "-m", "switchboard_mcp"]
    return Contestant(key, title, argv, tool="echo_suite", params=SUITE, cwd=workspace, env=env)


def line_up(workspace: Path, options: Options) -> tuple[list[Contestant], list[str]]:
    """Return the available contestants in the order of the table, and the missing ones."""
    python, relay = sys.executable, str(HERE / "bare_relay.py")
    everybody = [
        (True, Contestant("direct", "direct", CHILD)),
        (True, Contestant("relay", "bare relay", [python, relay, *CHILD])),
        (has_switchboard(), switchboard("switchboard", "Switchboard", workspace, uvloop=False)),
        (
            installed("fastmcp"),
            Contestant("fastmcp", "FastMCP's proxy", [python, str(HERE / "fastmcp_proxy.py"), *CHILD]),
        ),
    ]
    if installed("uvloop"):
        everybody += [
            (True, Contestant("relay-uvloop", "bare relay, uvloop", [python, relay, "--uvloop", *CHILD])),
            (
                has_switchboard(),
                switchboard("switchboard-uvloop", "Switchboard, uvloop", workspace, uvloop=True),
            ),
        ]
    wanted = [(here, contestant) for here, contestant in everybody if options.wants(contestant.key)]
    present = [contestant for here, contestant in wanted if here]
    return present, [contestant.title for here, contestant in wanted if not here]
