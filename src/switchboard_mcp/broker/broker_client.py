"""Finds the brokers of a workspace and asks them, for the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from switchboard_mcp import __version__
from switchboard_mcp.broker import shim
from switchboard_mcp.broker.address import broker_names, runtime_folder, socket_address

MAX_ANSWER_BYTES = 16 * 1024 * 1024


def find_brokers(workspace: str, config: str | None, environ: Mapping[str, str]) -> list[str]:
    """Return the sockets of the brokers of a workspace and config file. Some may be left from brokers that died."""
    folder, prefix = runtime_folder(environ), broker_names(os.path.realpath(workspace), config)
    if not folder:
        return []
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if _is_socket(name, prefix)]


def _is_socket(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and "." not in name


def ask_broker(path: str, kind: str, arguments: Sequence[str] = ()) -> str | None:
    """Return the answer of a broker to `status`, `restart` or `stop`; None if it does not run."""
    try:
        connection = shim.connect(socket_address(path))
    except OSError:
        return None
    try:
        shim.send_hello(connection, shim.encode_hello(kind, __version__, arguments, {}))
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MAX_ANSWER_BYTES:
            part = connection.recv(65_536)
            if not part:
                break
            answer += part
    except OSError:
        return None
    finally:
        connection.close()
    return answer.decode("utf-8", "replace").rstrip("\n")
