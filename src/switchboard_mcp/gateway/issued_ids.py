"""Ids that children hand out, and the client that received each of them.

A task, a cursor, a `requestState`, an elicitation or a link to a resource is useful only to the client that received it
from the child: for every other client it does not exist. The client is the principal and, while it is connected, the
session. Requests without a session share the ids of their principal, and a session that has ended leaves its ids to its
principal, so a client that reconnects can continue.

Ids of a child process end with the process: its next run may hand out the same ones.

A task that was started through a suite is known to hosts by an id of our own, since the ids of several children may be
the same. It ends with the task's `ttl`.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from switchboard_mcp.children.context import ChildHandle

# The oldest ids of a principal are forgotten first. A host rarely has more than a few tasks, but many links.
MAX_IDS = 10_000
# Tasks of suites that a principal may have at a time. Until some have ended its calls are made as plain ones.
MAX_TASKS = 1_000
# A task without a `ttl`, or with a longer one, is forgotten after this.
MAX_TASK_S = 7 * 24 * 3600.0
TASK_ID_BYTES = 24
# Children choose the ids; longer ones are kept as their hash.
MAX_LENGTH = 128

# Kind, child, owner of the child's process, id, and for ids that several clients may hold the one that does.
Key = tuple["IdKind", str, object, str, object]


class ClientSession(Protocol):
    """A session, as far as ownership needs it."""

    principal: str
    ephemeral: bool
    leaves_to: str | None


class IdKind(Enum):
    """The kinds of ids."""

    TASK = "task"  # by the child's id
    SUITE_TASK = "suite task"  # by our id
    CURSOR = "cursor"
    REQUEST_STATE = "requestState"
    ELICITATION = "elicitation"
    RESOURCE = "resource"


# Ids of which a child hands out each to one client. Others, such as a link, may be the same for several clients.
EXCLUSIVE = frozenset({IdKind.TASK, IdKind.SUITE_TASK, IdKind.ELICITATION})


class IssuedId(Struct):
    """An id in the hands of a client. `item` is the tool that created a task.

    `other_id` of a task of a suite is the child's id if this is ours, and ours if this is the child's.
    """

    principal: str
    session: ClientSession | None  # None if every session of the principal may use it
    run: object  # the run of the child process that issued it; None if the id outlives runs
    item: str = ""
    other_id: str = ""
    created: float = 0.0
    expires: float = 0.0
    ended: bool = False  # the child has reported that the task has ended


class IssuedIds:
    """Records ids as they pass to hosts, and finds them again when hosts use them."""

    def __init__(self) -> None:
        self._ids: dict[Key, IssuedId] = {}
        self._by_principal: dict[str, dict[Key, None]] = {}  # oldest first
        self._task_counts: dict[str, int] = {}  # tasks of suites, by principal

    def issue(
        self, session: ClientSession, child: ChildHandle, kind: IdKind, id: str, item: str = ""
    ) -> IssuedId | None:
        """Record an id that a session receives; return None for a task or elicitation that another client holds."""
        owner = None if session.ephemeral else session
        key = _key(child, kind, id, owner or session.principal)
        issued = self._current(key, child)
        if issued is not None and not _holds(issued, session):
            return None
        if issued is None:
            issued = IssuedId(session.principal, owner, _run(child), item)
        else:
            self._forget(session.principal, key)
        self._keep(session.principal, key, issued)
        ids = self._by_principal[session.principal]
        if len(ids) > MAX_IDS:
            self._forget(session.principal, next(iter(ids)))
        return issued

    def issue_task(
        self, session: ClientSession, child: ChildHandle, childs_id: str, item: str, now: float, ttl_s: float
    ) -> str:
        """Record a task that a call of a suite has started; return the id for the host.

        If the child has given the same id to another client, the new id is of no use.
        """
        ours = os.urandom(TASK_ID_BYTES).hex()
        reported = self.issue(session, child, IdKind.TASK, childs_id, item)
        if reported is None:
            return ours
        if not reported.other_id:
            reported.other_id = ours
        task = self.issue(session, child, IdKind.SUITE_TASK, reported.other_id, item)
        assert task is not None  # the id is ours, and new or this client's
        task.other_id = childs_id
        task.created = task.created or now
        task.expires = task.created + min(ttl_s, MAX_TASK_S)
        return reported.other_id

    def find_task(self, session: ClientSession, child: ChildHandle, id: str, now: float) -> IssuedId | None:
        """Return a task of a suite that the session may use, or None."""
        issued = self.find(session, child, IdKind.SUITE_TASK, id)
        if issued is not None and issued.expires <= now:
            self._forget_task(issued.principal, _key(child, IdKind.SUITE_TASK, id, None))
            return None
        return issued

    def may_start_task(self, principal: str, now: float) -> bool:
        """Return True if a principal has fewer tasks of suites than the limit; ended ones go first."""
        if self._task_counts.get(principal, 0) < MAX_TASKS:
            return True
        for key in [key for key in self._by_principal[principal] if key[0] is IdKind.SUITE_TASK]:
            task = self._ids[key]
            if task.ended or task.expires <= now:
                self._forget_task(principal, key)
        return self._task_counts.get(principal, 0) < MAX_TASKS

    def task_alias(self, child: ChildHandle, childs_id: str) -> str:
        """Return our id of a task of a suite; empty if the host knows the task by the child's id."""
        issued = self._current(_key(child, IdKind.TASK, childs_id, None), child)
        return issued.other_id if issued is not None else ""

    def find(self, session: ClientSession, child: ChildHandle, kind: IdKind, id: str) -> IssuedId | None:
        """Return an id that the session may use, or None."""
        for holder in (session, session.principal):
            issued = self._current(_key(child, kind, id, holder), child)
            if issued is not None and _holds(issued, session):
                return issued
        return None

    def session_of(self, child: ChildHandle, kind: IdKind, id: str) -> ClientSession | None:
        """Return the connected session that holds a task or an elicitation, or None."""
        issued = self._current(_key(child, kind, id, None), child)
        return issued.session if issued is not None else None

    def session_closed(self, session: ClientSession) -> None:
        """Leave the ids of a session to its principal, if it has one; those of its own child processes end."""
        if session.ephemeral:
            return
        ids = self._by_principal.get(session.principal, {})
        for key in list(ids):
            issued = self._ids[key]
            if issued.session is session:
                self._forget(session.principal, key)
                if key[2] is not session and session.leaves_to is not None:
                    issued.session = None
                    left = key if key[4] is None else (*key[:4], session.principal)
                    self._keep(session.principal, left, issued)

    def _current(self, key: Key, child: ChildHandle) -> IssuedId | None:
        """Return an id, unless it is from an earlier run of the child process."""
        issued = self._ids.get(key)
        if issued is not None and issued.run is not _run(child):
            self._forget(issued.principal, key)
            return None
        return issued

    def _keep(self, principal: str, key: Key, issued: IssuedId) -> None:
        self._ids[key] = issued
        self._by_principal.setdefault(principal, {})[key] = None
        if key[0] is IdKind.SUITE_TASK:
            self._task_counts[principal] = self._task_counts.get(principal, 0) + 1

    def _forget(self, principal: str, key: Key) -> None:
        del self._ids[key]
        del self._by_principal[principal][key]
        if key[0] is IdKind.SUITE_TASK:
            self._task_counts[principal] -= 1

    def _forget_task(self, principal: str, key: Key) -> None:
        """Forget a task of a suite by both of its ids."""
        _, child, owner, _, holder = key
        reported = (IdKind.TASK, child, owner, _shortened(self._ids[key].other_id), holder)
        self._forget(principal, key)
        if reported in self._ids:
            self._forget(principal, reported)


def _key(child: ChildHandle, kind: IdKind, id: str, holder: object) -> Key:
    return (kind, child.name, child.owner, _shortened(id), None if kind in EXCLUSIVE else holder)


def _shortened(id: str) -> str:
    """Return an id, or the hash of a long one."""
    if len(id) <= MAX_LENGTH:
        return id
    from hashlib import sha256  # hardly ever needed

    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def _run(child: ChildHandle) -> object:
    """Return the current run of a child process; None for a remote server, whose ids outlive a connection."""
    return child.peer if child.spec.kind == "stdio" else None


def _holds(issued: IssuedId, session: ClientSession) -> bool:
    """Return True if a session may use an id."""
    return issued.principal == session.principal and issued.session in (None, session)
