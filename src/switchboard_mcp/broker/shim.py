"""Hands the pipes of a host over to the broker, then waits until the session ends.

Runs in the process that the host has started, and once more (`rejoin`) when the broker has ended. It imports only what
is built in, since a host waits for it. While it waits it is a shell, which needs a twentieth of the memory of Python.

The protocol: a client connects, and sends the length of its message (4 bytes, with the descriptors of a host attached)
and the message: fields that end with a zero byte (`encode_hello`). The broker answers with one line: `ok`,
`version VERSION`, or `no REASON`. For a session that was accepted, another line follows at its end: the exit code. A
connection that ends without it means that the broker has ended, and the session is handed over again.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` takes a millisecond to be imported
import _socket
import fcntl
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from os import _exit

from switchboard_mcp.broker.peers import check_peer, peer_of

PROTOCOL = "1"
# Descriptors of the waiting process, which a shell can name with one digit.
JOURNAL_FD, CONTROL_FD = 8, 9
FIRST_SPARE_FD = 10
# A signal ends the session as it does without a broker: with exit code 0, after which the broker sees the end.
WAIT_SCRIPT = 'trap "exit 0" TERM INT HUP; read code <&9 && exit "$code"; exec "$@"'
SHELL = "/bin/sh"
END_SIGNALS = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)
# A broker that serves answers in milliseconds; one that does not within this time hangs. A start takes tenths of a
# second, more on a busy machine, and hosts give up after ten. One that has just started may still be loading code.
HUNG_S = 1.0
LOADING_S = 10.0
JOIN_TIMEOUT_S = 8.0
# A broker that is ending lets calls finish first, and has no socket any more.
END_TIMEOUT_S = 30.0
MAX_STARTS = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.1
MAX_REPLY_BYTES = 4096
BACKLOG = 4096

# The name of the process in `ps`, since it keeps the command line of the one that has started it.
PROCESS_NAME = "sb-broker"

Starter = Callable[[], bool]
# Serves as the broker with a listener and a lock, and returns the exit code.
Serve = Callable[[int, int], int]


class NoBrokerError(Exception):
    """There is no broker for this session; the message says why."""


class HungBrokerError(NoBrokerError):
    """The broker runs, and does not answer."""


def encode_hello(kind: str, version: str, arguments: Sequence[str], environ: Mapping[str, str]) -> bytes:
    """Encode the first message of a connection: its purpose, and for a session how it was started."""
    variables = [f"{name}={value}" for name, value in environ.items()]
    fields = [PROTOCOL, kind, version, os.getcwd(), str(len(arguments)), *arguments, *variables]
    return b"".join(os.fsencode(field) + b"\0" for field in fields)


def connect(address: str) -> _socket.socket:
    """Connect to a broker of this user. Raises OSError if there is none."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(HUNG_S)
        connection.connect(address)
        if peer_of(connection)[1] != os.getuid():
            raise NoBrokerError("the socket belongs to another user")
    except BaseException:
        connection.close()
        raise
    return connection


def send_hello(connection: _socket.socket, hello: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send the first message, with the descriptors of a host."""
    attached = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, attached)] if attached else []
    connection.sendmsg([len(hello).to_bytes(4, "big")], ancillary)
    connection.sendall(hello)


def read_line(connection: _socket.socket) -> str:
    """Return the next line of the broker; empty if it has ended. Nothing beyond the line is read."""
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_REPLY_BYTES:
        byte = connection.recv(1)
        if not byte:
            return ""
        line += byte
    return line.decode("utf-8", "replace").rstrip("\n")


def join(
    address: str, version: str, arguments: Sequence[str], journal: int, start: Starter | None
) -> _socket.socket:
    """Hand this process's standard streams over. `start` starts a broker; without it, only a running one is joined.

    Returns the connection of the session. Raises NoBrokerError.
    """
    hello = encode_hello("join", version, arguments, os.environ)
    begun, limit_s, pause, starts = time.monotonic(), JOIN_TIMEOUT_S, FIRST_PAUSE_S, 0
    while time.monotonic() < begun + limit_s:
        try:
            connection = _connect_to_peer(address, version)
        except (FileNotFoundError, ConnectionRefusedError):
            if start is None:
                raise NoBrokerError("none is running") from None
            if starts >= MAX_STARTS:
                raise NoBrokerError(f"it ended {MAX_STARTS} times right after its start") from None
            if start():
                starts += 1
                continue
            limit_s = END_TIMEOUT_S
        except OSError:
            pass
        else:
            connection.settimeout(max(begun + limit_s - time.monotonic(), HUNG_S))
            reply = _hand_over(connection, hello, journal)
            if reply == "ok":
                connection.settimeout(None)
                return connection
            connection.close()
            if reply.startswith("version "):
                _replace(address, version, reply.partition(" ")[2])
                limit_s = END_TIMEOUT_S
            elif reply:
                raise NoBrokerError(reply.removeprefix("no "))
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)
    raise NoBrokerError(f"it did not answer within {limit_s:.0f} s")


def _connect_to_peer(address: str, version: str) -> _socket.socket:
    """Connect to a broker that has the rights of this process, since it gets the host's pipes and environment."""
    connection = connect(address)
    try:
        if problem := check_peer(connection):
            raise NoBrokerError(problem)
        if _is_serving(connection):
            _require_answer(address, version)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_serving(connection: _socket.socket) -> bool:
    """Return True if the process on the other side is a broker, not one that has just begun to start it."""
    try:
        with open(f"/proc/{peer_of(connection)[0]}/comm", encoding="utf-8") as name:
            return name.read().strip() == PROCESS_NAME
    except OSError:
        return False


def _require_answer(address: str, version: str) -> None:
    """Raise HungBrokerError if the broker does not answer at once: it must not get the pipes of a host then.

    Whatever it answers, it is alive.
    """
    pid = 0
    try:
        connection = connect(address)
        try:
            pid = peer_of(connection)[0]
            if time.time() - os.stat(address).st_mtime < LOADING_S:
                connection.settimeout(JOIN_TIMEOUT_S)
            send_hello(connection, encode_hello("ping", version, (), {}))
            read_line(connection)
        finally:
            connection.close()
    except TimeoutError:
        what = f"it does not answer (pid {pid}); `switchboard broker restart --force` replaces it"
        raise HungBrokerError(what) from None
    except OSError:
        return  # it has just ended


def _hand_over(connection: _socket.socket, hello: bytes, journal: int) -> str:
    """Return the reply; empty if the broker has just ended, so the session can be handed to the next one."""
    try:
        send_hello(connection, hello, (0, 1, 2, journal))
        return read_line(connection)
    except OSError:
        return ""


def _replace(address: str, own: str, running: str) -> None:
    """Ask an older broker to end; its sessions go to the next one. Raises NoBrokerError if it is newer."""
    if _version_key(own) <= _version_key(running):
        raise NoBrokerError(f"it runs version {running}, and this is {own}")
    try:
        connection = connect(address)
        send_hello(connection, encode_hello("restart", own, (), {}))
        read_line(connection)
        connection.close()
    except OSError:
        pass


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def wait(connection: _socket.socket, journal: int, rejoin: Sequence[str]) -> int:
    """Wait for the end of the session, as a shell. If the broker ends first, run the command `rejoin`.

    Returns the exit code only if there is no shell.
    """
    control = connection.detach()
    while control < FIRST_SPARE_FD:
        control = os.dup(control)
    while journal < FIRST_SPARE_FD:
        journal = os.dup(journal)
    os.dup2(control, CONTROL_FD)
    os.dup2(journal, JOURNAL_FD)
    if _shell_preserves(os.environ):
        try:
            # A shell cannot trap what was ignored when it was started, as `nohup` does with SIGHUP.
            for number in END_SIGNALS:
                _signal.signal(number, _signal.SIG_DFL)
            os.execv(SHELL, ["switchboard", "-c", WAIT_SCRIPT, "switchboard", *rejoin])
        except OSError:
            pass
    for number in END_SIGNALS:
        _signal.signal(number, lambda *_: _exit(0))
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(control, 1)
        if not byte:
            os.execv(rejoin[0], list(rejoin))
        line += byte
    return int(line)


def _shell_preserves(environ: Mapping[str, str]) -> bool:
    """Return True if a shell passes all variables on. Some shells drop those whose names they cannot use."""
    return all(name.isascii() and name.isidentifier() for name in environ)


def start_broker(path: str, address: str, serve: Serve, environ: Mapping[str, str]) -> bool:
    """Start a broker that listens at `path`. Return False if another process is starting or running one.

    Only the holder of the lock binds or removes the socket, and the broker holds it for as long as it lives. Clients
    can connect at once: they wait until the broker accepts.
    """
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if not names_file(f"{path}.lock", lock):
            return False  # a broker that has ended, or one that has found it left, has just removed it
        if os.path.lexists(path):
            os.unlink(path)
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            mask = os.umask(0o177)
            try:
                listener.bind(address)
            finally:
                os.umask(mask)
            listener.listen(BACKLOG)
            # Opened here, so that this process reports a full disk.
            log = os.open(
                f"{path}.log",
                os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
            )
            try:
                _spawn(serve, environ, log, (listener.fileno(), lock))
            finally:
                os.close(log)
        finally:
            listener.close()
    finally:
        os.close(lock)
    return True


def names_file(path: str, descriptor: int) -> bool:
    """Return True if a path still names the file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _spawn(serve: Serve, environ: Mapping[str, str], log: int, kept: tuple[int, int]) -> None:
    """Serve in a daemon: a process without a parent that waits for it, and without a terminal.

    It is forked and runs no new program: what this process has imported need not be imported again, which takes as
    long as the rest of a start.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    code = 127
    try:
        os.setsid()
        if os.fork():
            _exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((null, 0), (null, 1), (log, 2)):
            os.dup2(source, target)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in kept:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the folder itself
        _record_process(kept[1])
        os.environ.clear()
        os.environ.update(environ)
        code = serve(*kept)
    except BaseException:  # noqa: BLE001 - nothing may return to the code of the host's process
        sys.excepthook(*sys.exc_info())
    finally:
        _exit(code)


def _record_process(lock: int) -> None:
    """Write the pid to the lock, for `broker restart --force` if the broker hangs, and set its name for `ps`."""
    try:
        with open("/proc/self/comm", "w", encoding="utf-8") as name:
            name.write(PROCESS_NAME)
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d" % os.getpid(), 0)
    except OSError:
        pass  # the disk is full: it serves all the same
