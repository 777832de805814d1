"""The broker's side of a connection: reads the first message of a client, and replies in one line."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

from switchboard_mcp.broker.hello import MAX_HELLO_BYTES, Hello, decode_hello
from switchboard_mcp.broker.peers import check_peer

HOST_DESCRIPTORS = 4  # stdin, stdout, stderr and the journal
NO_DESCRIPTORS = "it has reached its limit of open files (ulimit -n)"
NOT_OUR_PROTOCOL = "the message does not follow the protocol"


class RefusedError(Exception):
    """A client that this broker does not serve; the message says why."""


async def read_hello(connection: socket.socket, descriptors: list[int]) -> Hello:
    """Read the first message. The descriptors that come with it are added to the list, also if it is refused."""
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    problem = check_peer(connection)  # at once, since the pid of a process that has ended is used again
    await _wait_readable(connection)
    space = socket.CMSG_SPACE(HOST_DESCRIPTORS * 4)
    head, ancillary, flags, _ = connection.recvmsg(4, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(data) - len(data) % 4
            descriptors += (int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, whole, 4))
    size = int.from_bytes(head, "big")
    if len(head) < 4 or size > MAX_HELLO_BYTES:
        raise RefusedError(NOT_OUR_PROTOCOL)
    body = b""
    while len(body) < size:
        await _wait_readable(connection)
        part = connection.recv(size - len(body))
        if not part:
            raise RefusedError("the message is not complete")
        body += part
    hello = decode_hello(body)
    if problem or hello is None:
        raise RefusedError(problem or NOT_OUR_PROTOCOL)
    if flags & socket.MSG_CTRUNC:
        raise RefusedError(NO_DESCRIPTORS)
    return hello


def reply(connection: socket.socket, line: str) -> None:
    """Send one line, unless the client has disconnected."""
    with suppress(OSError):
        connection.sendall(line.encode("utf-8", "replace").replace(b"\n", b" ") + b"\n")


async def _wait_readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection.fileno())
