"""The address of the broker that may serve a host: one per workspace, config file and environment.

Children inherit the environment, so hosts with different environments must not share any, and have brokers of their
own. Variables that differ between terminals and windows and that no server depends on are left out (`is_noise`). The
same holds for limits, priority and sandbox, which children inherit too (`inherited_limits`).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping

from switchboard_mcp.broker.peers import hard_limits

try:
    from _blake2 import blake2b
except ImportError:  # pragma: no cover - a build of Python without it
    from hashlib import blake2b

# Variables of terminals, windows and login sessions, and marks that hosts leave. A broker runs without them.
NOISE = frozenset(
    """_ SHLVL PWD OLDPWD TERM TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID TERMINFO TERMCAP COLORTERM COLUMNS
    LINES WINDOWID TTY STY SSH_TTY SSH_CLIENT SSH_CONNECTION CLAUDECODE AI_AGENT GEMINI_CLI GEMINI_SESSION_ID PS1
    LS_COLORS INVOCATION_ID JOURNAL_STREAM CHROME_DESKTOP OPENCODE_PID""".split()
)
NOISE_PREFIXES = (
    *("TMUX", "VSCODE_", "CURSOR_", "CLAUDE_CODE_", "CODEX_", "ITERM", "KITTY_", "ALACRITTY_", "WEZTERM_"),
    *("GNOME_TERMINAL_", "KONSOLE_", "PROMPT", "HIST", "LESS", "npm_", "XDG_SESSION_", "ELECTRON_"),
)
# A name with one of these may be that of a credential, which is never noise.
SECRET_WORDS = ("TOKEN", "SECRET", "KEY", "PASS", "AUTH", "CREDENTIAL")
# Except for these, which a host creates for each session: they give access to that session alone.
SESSION_CREDENTIALS = frozenset({"CLAUDE_CODE_MESSAGING_TOKEN"})
# Codex adds a folder with links to itself to PATH, a new one for each session.
SESSION_FOLDER = "/codex-arg0"
# Processes that differ in one of these are in different sandboxes or containers.
NAMESPACES = ("user", "mnt", "pid", "net")
# All socket names begin with it.
PREFIX = "sb-"
# Longest path of a Unix socket, without the final zero.
MAX_SOCKET_PATH = 107


def is_noise(name: str) -> bool:
    """Return True if a variable does not count, because no server depends on it."""
    if name not in NOISE and not name.startswith(NOISE_PREFIXES):
        return False
    if name in SESSION_CREDENTIALS:
        return True
    upper = name.upper()
    return not any(word in upper for word in SECRET_WORDS)


def without_noise(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a broker, and of every child it starts."""
    kept = {name: value for name, value in environ.items() if not is_noise(name)}
    if SESSION_FOLDER in kept.get("PATH", ""):
        kept["PATH"] = ":".join(folder for folder in kept["PATH"].split(":") if SESSION_FOLDER not in folder)
    return kept


def runtime_folder(environ: Mapping[str, str], *, create: bool = False) -> str:
    """Return the folder for sockets, which only this user can use; empty if there is none."""
    folder = wanted_folder(environ)
    if create:
        try:
            os.mkdir(folder, 0o700)
        except OSError:
            pass  # it exists, or the check below fails
    return folder if _is_private(folder, os.getuid()) else ""


def wanted_folder(environ: Mapping[str, str]) -> str:
    """Return the folder for sockets, also if it does not exist or cannot be used."""
    user = os.getuid()
    base = environ.get("XDG_RUNTIME_DIR", "")
    if not (base and _is_private(base, user)):
        base = f"/run/user/{user}"
    return f"{base}/switchboard" if _is_private(base, user) else f"/tmp/switchboard-{user}"


def runtime_folders(environ: Mapping[str, str]) -> list[str]:
    """Return all folders that may have sockets. A host that passes few variables on uses another than a terminal."""
    user = os.getuid()
    bases = [f"{base}/switchboard" for base in (environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}") if base]
    return [
        folder for folder in dict.fromkeys([*bases, f"/tmp/switchboard-{user}"]) if _is_private(folder, user)
    ]


def _is_private(folder: str, user: int) -> bool:
    """Return True for a folder, not a link, that belongs to the user and that no other user can enter."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077


def broker_prefix(workspace: str, config: str | None) -> str:
    """Return the prefix of the names of all brokers of a workspace and config file."""
    return f"{PREFIX}{_hash([workspace, os.path.realpath(config) if config else ''])[:8]}-"


def broker_name(workspace: str, config: str | None, environ: Mapping[str, str]) -> str:
    """Return the name of the broker for hosts with this environment."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    variables = [f"{name}={value}" for name, value in sorted(without_noise(environ).items())]
    own = _hash([package, *inherited_limits(), *variables])[:16]
    return broker_prefix(workspace, config) + own


def inherited_limits() -> list[str]:
    """Return what children inherit beside the environment: umask, priority, processors, namespaces, and limits."""
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    mask = os.umask(0o077)
    os.umask(mask)
    limits = [
        f"umask {mask:o}",
        f"priority {os.getpriority(os.PRIO_PROCESS, 0)}",
        f"scheduler {os.sched_getscheduler(0)}",
        f"processors {sorted(os.sched_getaffinity(0))}",
    ]
    for name in NAMESPACES:
        try:
            limits.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            limits.append(f"{name} unknown")  # the broker checks again, and refuses
    return [*limits, *hard_limits()]


def socket_address(path: str) -> str:
    """Return the path of a socket in a form that is short enough. The descriptor of its folder stays open."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    folder, name = os.path.split(path)
    return f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}/{name}"


def _hash(parts: list[str]) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
