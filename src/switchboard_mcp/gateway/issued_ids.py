"""Ids that children hand out, and the client that received each of them.

A task, a cursor, a `requestState`, an elicitation or a link to a resource is of use only to the client that received it
from the child: for every other client it does not exist. The client is the principal and, while it is connected, the
session. Requests without a session share the ids of their principal, and a session that has ended leaves its ids to its
principal, so a client that reconnects can continue.

Ids of a child process end with the process: its next run may hand out the same ones.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildHandle

# The oldest ids of a principal are forgotten first. A host rarely has more than a few tasks, but many links.
MAX_IDS = 10_000
# Children choose the ids; longer ones are kept as their hash.
MAX_LENGTH = 128

# Kind, child, owner of the child's process, id, and for ids that several clients may hold the one that does.
Key = tuple["IdKind", str, object, str, object]


class ClientSession(Protocol):
    """A session, as far as ownership needs it."""

    principal: str
    ephemeral: bool


class IdKind(Enum):
    """The kinds of ids."""

    TASK = "task"
    CURSOR = "cursor"
    REQUEST_STATE = "requestState"
    ELICITATION = "elicitation"
    RESOURCE = "resource"


# Ids of which a child hands out each to one client. Others, such as a link, may be the same for several clients.
EXCLUSIVE = frozenset({IdKind.TASK, IdKind.ELICITATION})


class IssuedId(Struct):
    """An id in the hands of a client. `item` is the tool that created a task."""

    principal: str
    session: ClientSession | None  # None if every session of the principal may use it
    run: object  # the run of the child process that issued it; None if the id outlives runs
    item: str = ""


class IssuedIds:
    """Records ids as they pass to hosts, and finds them again when hosts use them."""

    def __init__(self) -> None:
        self._ids: dict[Key, IssuedId] = {}
        self._by_principal: dict[str, dict[Key, None]] = {}  # oldest first

    def issue(
        self, session: ClientSession, child: ChildHandle, kind: IdKind, id: str, item: str = ""
    ) -> None:
        """Record an id that a session receives. A task or elicitation of another client stays with that client."""
        owner = None if session.ephemeral else session
        key = _key(child, kind, id, owner or session.principal)
        known = self._current(key, child)
        if known is not None and not _holds(known, session):
            return
        if known is None:
            known = self._ids[key] = IssuedId(session.principal, owner, _run(child), item)
        ids = self._by_principal.setdefault(session.principal, {})
        ids.pop(key, None)
        ids[key] = None
        if len(ids) > MAX_IDS:
            self._forget(session.principal, next(iter(ids)))

    def find(self, session: ClientSession, child: ChildHandle, kind: IdKind, id: str) -> IssuedId | None:
        """Return an id that the session may use, or None."""
        for holder in (session, session.principal):
            known = self._current(_key(child, kind, id, holder), child)
            if known is not None and _holds(known, session):
                return known
        return None

    def session_of(self, child: ChildHandle, kind: IdKind, id: str) -> ClientSession | None:
        """Return the connected session that holds a task or an elicitation, or None."""
        known = self._current(_key(child, kind, id, None), child)
        return known.session if known is not None else None

    def session_closed(self, session: ClientSession) -> None:
        """Leave the ids of a session to its principal; those of its own child processes end."""
        if session.ephemeral:
            return
        ids = self._by_principal.get(session.principal, {})
        for key in list(ids):
            issued = self._ids[key]
            if issued.session is session:
                self._forget(session.principal, key)
                if key[2] is not session:
                    issued.session = None
                    left = key if key[4] is None else (*key[:4], session.principal)
                    self._ids[left], ids[left] = issued, None

    def _current(self, key: Key, child: ChildHandle) -> IssuedId | None:
        """Return an id, unless it is from an earlier run of the child process."""
        known = self._ids.get(key)
        if known is not None and known.run is not _run(child):
            self._forget(known.principal, key)
            return None
        return known

    def _forget(self, principal: str, key: Key) -> None:
        del self._ids[key]
        del self._by_principal[principal][key]


def _key(child: ChildHandle, kind: IdKind, id: str, holder: object) -> Key:
    if len(id) > MAX_LENGTH:
        from hashlib import sha256  # hardly ever needed

        id = sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
    return (kind, child.name, child.owner, id, None if kind in EXCLUSIVE else holder)


def _run(child: ChildHandle) -> object:
    """Return the current run of a child process; None for a remote server, whose ids outlive a connection."""
    return child.peer if child.spec.kind == "stdio" else None


def _holds(issued: IssuedId, session: ClientSession) -> bool:
    """Return True if a session may use an id."""
    return issued.principal == session.principal and issued.session in (None, session)
