"""The identity of one workspace folder on the bus: its id, its lock, and the files it must keep.

All of it is kept in `.switchboard/bus/`. Blocking; not aware of Redis.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.plain_files import read_plain

T = TypeVar("T")
FOLDER = "bus"
LOCK = "relay.lock"
MAX_ID_LENGTH = 64
_MAX_BYTES = 1_048_576


class BusNode(Struct, frozen=True):
    """Identity of this folder."""

    id: str
    epoch: str = ""
    """Written by earlier versions."""


def is_node_id(id: str) -> bool:
    """Return True if the text is a valid node id."""
    return id.isascii() and id.isalnum() and len(id) <= MAX_ID_LENGTH


def identify(path: str) -> BusNode:
    """Return the identity of the folder at `path`, its `.switchboard`; created on first use, under its lock."""
    node = load(path, "node.json", BusNode)
    if node is None:
        node = BusNode(os.urandom(6).hex())
        save(path, "node.json", node, durable=True)
    if not is_node_id(node.id):
        raise OSError(errno.EBADMSG, "is not the identity of a machine; remove it", f"{FOLDER}/node.json")
    return node


def load(path: str, name: str, kind: type[T]) -> T | None:
    """Decode one of our files; return None if it is missing or unreadable."""
    try:
        return msgspec.json.decode(read_plain(os.path.join(path, FOLDER, name), _MAX_BYTES), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def save(path: str, name: str, value: object, *, durable: bool) -> None:
    """Replace one of our files. Unless `durable`, a power failure may bring back the previous version."""
    os.makedirs(os.path.join(path, FOLDER), 0o700, exist_ok=True)
    write_atomically(os.path.join(path, FOLDER, name), msgspec.json.encode(value), sync=durable)


def machine_id() -> str:
    """Identify this boot of this machine: two relays on it cannot both hold a folder's lock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read(36).strip()
    except OSError:
        boot = "unknown"
    return f"{socket.gethostname()}/{boot}".replace(" ", "_")


def _open_lock(folder: str) -> int:
    """Open the lock file, creating it. Each folder is opened by itself, so one that is a link is refused."""
    os.makedirs(folder, 0o700, exist_ok=True)
    place = file_operations.make_and_open_folder(folder, FOLDER)
    try:
        return os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=place)
    finally:
        os.close(place)


def acquire_lock(folder: str) -> int | None:
    """Become the one relay of this folder. Return the descriptor to keep open, or None if another process holds the
    lock.
    """
    try:
        descriptor = _open_lock(folder)
    except OSError as problem:
        raise SwitchboardError(file_operations.failure_for(problem, os.path.join(folder, FOLDER))) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
