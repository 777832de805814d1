"""One workspace folder as a place on the bus: its id, its lock, and the numbers it must not forget.

All of it stands in `.switchboard/bus/`, written through the store's own thread. Owns those files; does not know Redis.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.bus.sequence import SequenceMark
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction

T = TypeVar("T")
FOLDER = "bus"
LOCK = "relay.lock"
MAX_ID_LENGTH = 64
_MAX_BYTES = 1_048_576


class BusNode(Struct, frozen=True):
    """Who this folder is. `epoch` is new when its memory was lost, so that nobody takes new numbers for old ones."""

    id: str
    epoch: str


def is_node_id(id: str) -> bool:
    """Whether it can be the id of a machine; files are named by it."""
    return id.isascii() and id.isalnum() and len(id) <= MAX_ID_LENGTH


def identify(tx: Transaction) -> BusNode:
    """The identity of this folder, made once."""
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
    if node is None:
        raise OSError(5, "it cannot be read", f"{FOLDER}/node.json")
    return node


def load(tx: Transaction, name: str, kind: type[T]) -> T | None:
    """What a file of ours says; None where there is none that can be read."""
    if not tx.has(FOLDER):
        return None
    found = file_operations.read(tx.folder(FOLDER), name, _MAX_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        return None
    try:
        return msgspec.json.decode(found.data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def save(tx: Transaction, name: str, value: object, *, durable: bool) -> None:
    """Replace a file of ours. Where it is not durable a crash of the machine may bring back the one before."""
    draft = tx.write(msgspec.json.encode(value))
    if durable:
        tx.sync_file(draft)
    tx.put(draft, tx.folder(FOLDER, make=True), name)
    if durable:
        tx.sync_folders()


def received_file(node: str) -> str:
    """How far what comes from a node has been stored."""
    return f"from-{node}.json"


def next_number_file(node: str) -> str:
    """The next number for what goes to a node."""
    return f"to-{node}.json"


def load_sequence_mark(tx: Transaction, node: str) -> SequenceMark:
    """How far we have come."""
    return load(tx, received_file(node), SequenceMark) or SequenceMark()


def machine_id() -> str:
    """This start of this machine: two relays on one cannot both have a folder's lock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read(36).strip()
    except OSError:
        boot = "unknown"
    return f"{socket.gethostname()}/{boot}".replace(" ", "_")


def acquire_lock(folder: str) -> int | None:
    """Be the one relay of this folder; a descriptor to keep, or None while another process is."""
    path = os.path.join(folder, FOLDER)
    os.makedirs(path, 0o700, exist_ok=True)
    descriptor = os.open(
        os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
