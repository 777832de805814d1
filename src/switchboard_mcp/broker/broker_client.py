"""Finds the brokers of a workspace and sends them requests, for the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from switchboard_mcp import __version__
from switchboard_mcp.broker import shim
from switchboard_mcp.broker.address import PREFIX, broker_prefix, runtime_folders, socket_address
from switchboard_mcp.broker.peers import peer_of

MAX_ANSWER_BYTES = 16 * 1024 * 1024
# A broker answers in milliseconds. One that is starting takes tenths of a second.
ANSWER_TIMEOUT_S = 10.0
NO_ANSWER = "no answer"


def find_brokers(workspace: str, config: str | None, environ: Mapping[str, str]) -> list[str]:
    """Return the sockets of the brokers of a workspace and config file. Some may be left from brokers that died."""
    return _find(broker_prefix(os.path.realpath(workspace), config), environ)


def find_all_brokers(environ: Mapping[str, str]) -> list[str]:
    """Return the sockets of all brokers of this user."""
    return _find(PREFIX, environ)


def _find(prefix: str, environ: Mapping[str, str]) -> list[str]:
    return [
        os.path.join(folder, name)
        for folder in runtime_folders(environ)
        for name in sorted(os.listdir(folder))
        if _is_socket(name, prefix)
    ]


def _is_socket(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and "." not in name


def ask_broker(path: str, kind: str, arguments: Sequence[str] = ()) -> str | None:
    """Return the answer of a broker; None if it does not run. `NO_ANSWER` if it does, but hangs."""
    try:
        connection = shim.connect(socket_address(path))
    except (OSError, shim.NoBrokerError):
        return None
    try:
        connection.settimeout(ANSWER_TIMEOUT_S)
        shim.send_hello(connection, shim.encode_hello(kind, __version__, arguments, {}))
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER_BYTES:
            part = connection.recv(65_536)
            if not part:
                break
            answer += part
    except TimeoutError:
        return NO_ANSWER
    except OSError:
        return None
    finally:
        connection.close()
    return answer.decode("utf-8", "replace").rstrip("\n")


def broker_pid(path: str) -> int:
    """Return the pid of a broker: that in its lock, or of the process that listens, if the disk was full.

    0 if that process does not have the lock open.
    """
    try:
        with open(f"{path}.lock", "rb") as file:
            pid = int(file.read(20) or b"0") or _listening_pid(path)
            lock = os.fstat(file.fileno())
        folder = f"/proc/{pid}/fd"
        is_open = any(_is_same(f"{folder}/{name}", lock) for name in os.listdir(folder))
    except (OSError, ValueError):
        return 0
    return pid if is_open else 0


def _listening_pid(path: str) -> int:
    """Return the pid of the process that listens at a path. It need not accept."""
    try:
        connection = shim.connect(socket_address(path))
    except shim.NoBrokerError:
        return 0
    try:
        return peer_of(connection)[0]
    finally:
        connection.close()


def _is_same(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)
    except OSError:
        return False  # closed meanwhile
