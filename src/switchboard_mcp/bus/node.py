"""The identity of one workspace folder on the bus: its id, its lock, and the counters it must keep.

All of it is kept in `.switchboard/bus/` and written through the message store's own thread. Not aware of Redis.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.bus.sequence import SequenceMark
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction

T = TypeVar("T")
FOLDER = "bus"
LOCK = "relay.lock"
MAX_ID_LENGTH = 64
_MAX_BYTES = 1_048_576


class BusNode(Struct, frozen=True):
    """Identity of this folder. `epoch` changes when the folder's state was lost, so old and new numbers are not
    confused.
    """

    id: str
    epoch: str


def is_node_id(id: str) -> bool:
    """Return True if the text is a valid node id; files are named by it."""
    return id.isascii() and id.isalnum() and len(id) <= MAX_ID_LENGTH


def identify(tx: Transaction) -> BusNode:
    """Return the identity of this folder, creating it on first use."""
    node = load(tx, "node.json", BusNode)
    if node is None:
        draft = tx.write(msgspec.json.encode(BusNode(os.urandom(6).hex(), os.urandom(6).hex())))
        tx.sync_file(draft)
        try:
            tx.publish(draft, tx.folder(FOLDER, make=True), "node.json")
        except FileExistsError:
            tx.discard(draft)
        tx.sync_folders()
        node = load(tx, "node.json", BusNode)
    if node is None or not (is_node_id(node.id) and is_node_id(node.epoch)):
        raise OSError(errno.EBADMSG, "is not the identity of a machine; remove it", f"{FOLDER}/node.json")
    return node


def begin_epoch(tx: Transaction) -> BusNode:
    """Replace the epoch of this folder, because its numbers cannot be relied on, and return the new identity."""
    node = BusNode(identify(tx).id, os.urandom(6).hex())
    save(tx, "node.json", node, durable=True)
    return node


def load(tx: Transaction, name: str, kind: type[T]) -> T | None:
    """Decode one of our files; return None if it is missing or unreadable."""
    if not tx.has(FOLDER):
        return None
    content = file_operations.read(tx.folder(FOLDER), name, _MAX_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return None
    try:
        return msgspec.json.decode(content.data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def save(tx: Transaction, name: str, value: object, *, durable: bool) -> None:
    """Replace one of our files. Unless `durable`, a power failure may bring back the previous version."""
    draft = tx.write(msgspec.json.encode(value))
    if durable:
        tx.sync_file(draft)
    tx.put(draft, tx.folder(FOLDER, make=True), name)
    if durable:
        tx.sync_folders()


def received_file(node: str) -> str:
    """Return the name of the file that records how far messages from a node are stored."""
    return f"from-{node}.json"


def next_number_file(node: str) -> str:
    """Return the name of the file with the next number for messages to a node."""
    return f"to-{node}.json"


def load_sequence_mark(tx: Transaction, node: str) -> SequenceMark:
    """Return how far messages from a node are stored."""
    return load(tx, received_file(node), SequenceMark) or SequenceMark()


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
