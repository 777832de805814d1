"""Joins the broker of a workspace: the first thing that a process which a host has started does.

If no broker runs, nothing is imported and little is asked of the system, so a session without a broker pays nothing.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from importlib import import_module

from switchboard_mcp import __version__
from switchboard_mcp.broker import address, shim
from switchboard_mcp.broker.peers import IN_SANDBOX, is_confined
from switchboard_mcp.config.serve_flags import parse_flags
from switchboard_mcp.config.workspace_folder import served_workspace

# `BROKER_SWITCH` of the config, which is not loaded yet.
SWITCH = "SWITCHBOARD_BROKER"
BROKER = "switchboard_mcp.broker_app"
# Runs `rejoin` in the process of a waiting session. It is kept as text, since the files of the package may be away when
# it is needed: an installer replaces them within seconds. Its first argument is the time until which it tries.
REJOIN = """
import os, sys, time
until = float(sys.argv[1]) or time.monotonic() + 30
try:
    from switchboard_mcp.broker.rejoin import main
except Exception:
    if time.monotonic() > until: raise
    time.sleep(0.5)
    os.execv(sys.executable, [*sys.orig_argv[:1 - len(sys.argv)], str(until), *sys.argv[2:]])
sys.exit(main(sys.argv[2:], until))
"""
# The current folder must not be a source of modules. The rest as this process was started.
PYTHON = [
    *(sys.executable, "-P"),
    *(["-E"] if sys.flags.ignore_environment else []),
    *(["-s"] if sys.flags.no_user_site else []),
]
# The pid of the main process of a container, with whose end all others are killed.
MAIN_PROCESS = 1


# Why the broker of this process hangs, if it does: it is not asked a second time.
_hung = ""


class NoBrokerHereError(shim.NoBrokerError):
    """A process like this one never has a broker, so the user need not know the reason."""


def join_running(arguments: list[str], environ: Mapping[str, str]) -> int | None:
    """Hand the host of this process to the broker that runs for it.

    Does not return if that succeeds, unless there is no shell: then it returns the exit code. Returns None if there is
    no broker, and this process has to serve.
    """
    options = parse_flags(arguments)
    if options is None or options.get("alone") or environ.get(SWITCH) == "off" or sys.platform != "linux":
        return None
    if not options.get("reload", True):
        return None
    folder = address.runtime_folder(environ)
    if not folder:
        return None
    try:
        path = os.path.join(folder, _name(options, environ))
        if not os.path.exists(path) or not has_pipes():
            return None
        return _join(path, arguments, environ, start=False)
    except shim.HungBrokerError as problem:
        global _hung
        _hung = str(problem)
        return None
    except (shim.NoBrokerError, OSError):
        return None  # the reason is logged by the process that serves


def start_and_join(arguments: list[str], environ: Mapping[str, str], journal: int = -1) -> int:
    """Hand the host of this process to a broker, which is started if there is none.

    `journal` is that of a session which another broker has served. Raises NoBrokerError with the reason why this
    process has to serve. Returns as `join_running` does.
    """
    if _hung:
        raise shim.NoBrokerError(_hung)
    try:
        _require_support(journal)
    except OSError as problem:
        raise shim.NoBrokerError(str(problem)) from None
    folder = address.runtime_folder(environ, create=True)
    if not folder:
        wanted = address.wanted_folder(environ)
        raise shim.NoBrokerError(f"{wanted} is not a folder of this user with mode 0700. Set XDG_RUNTIME_DIR")
    options = parse_flags(arguments)
    assert options is not None
    if not options.get("reload", True):
        raise NoBrokerHereError("--no-reload is for the config of a single session")
    try:
        return _join(os.path.join(folder, _name(options, environ)), arguments, environ, journal)
    except OSError as problem:
        raise shim.NoBrokerError(str(problem)) from None


def _require_support(journal: int) -> None:
    """Raise NoBrokerError if this process or this system cannot have a broker."""
    if sys.platform != "linux":
        raise NoBrokerHereError("this system is not Linux")
    if not has_pipes():
        raise NoBrokerHereError("stdin and stdout are not pipes")
    if journal >= 0:
        return  # it had one
    if MAIN_PROCESS in (os.getpid(), os.getppid()):
        raise NoBrokerHereError("this is the main process of a container, with which the broker would end")
    if is_confined():
        raise shim.NoBrokerError(IN_SANDBOX)
    if not can_splice():
        raise shim.NoBrokerError("this system cannot move output from memory to a pipe (splice)")


def can_splice() -> bool:
    """Return True if `splice` works as the session journal needs it. Some systems only emulate Linux."""
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    opened: list[int] = []
    try:
        opened.append(os.memfd_create("switchboard", os.MFD_CLOEXEC))
        opened.extend(os.pipe2(os.O_CLOEXEC))
        memory, reader, writer = opened
        os.pwrite(memory, b"switchboard", 0)
        os.splice(memory, writer, 6)
        return os.read(reader, 11) == b"switch" and os.lseek(memory, 0, os.SEEK_CUR) == 6
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _name(options: dict[str, str | bool], environ: Mapping[str, str]) -> str:
    folder, config = str(options.get("workspace", "")), options.get("config")
    folder = os.path.abspath(folder) if folder else served_workspace(os.getcwd(), environ)
    return address.broker_name(os.path.realpath(folder), str(config) if config else None, environ)


def _join(
    path: str, arguments: list[str], environ: Mapping[str, str], journal: int = -1, *, start: bool = True
) -> int:
    socket_address = address.socket_address(path)
    if sys.platform != "linux":
        raise OSError("This needs Linux.")

    def serve(listener: int, lock: int) -> int:
        if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
            del sys.path[0]
        return int(import_module(BROKER).serve_sessions(path, listener, lock, arguments))

    def start_broker() -> bool:
        return shim.start_broker(path, socket_address, serve, address.without_noise(environ))

    if journal < 0:
        journal = os.memfd_create("switchboard", os.MFD_CLOEXEC)
    connection = shim.join(socket_address, __version__, arguments, journal, start_broker if start else None)
    return shim.wait(connection, journal, [*PYTHON, "-c", REJOIN, "0", *arguments])


def has_pipes() -> bool:
    """Return True if the streams can be handed over: stdin and stdout are pipes or sockets, and stderr is open."""
    try:
        modes = [os.fstat(number).st_mode for number in (0, 1)]
        os.fstat(2)
    except OSError:
        return False
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)
