"""Delivers files that programs dropped into an inbox, or dead-letters them.

Any file without a valid signature counts as dropped, whatever its name. Delivery writes a new file, marked unverified
and with an order number, then removes the dropped one. Names that begin with a dot or end in `.tmp` are temporary
files of other programs and are left alone. Not aware of who watches the folder.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Sequence
from itertools import islice
from os import urandom

import msgspec

from switchboard_mcp.config.agent_names import agent_name, is_agent_name
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.messages import OUTCOMES, Delivery, DeliveryRule, MailMessage
from switchboard_mcp.mail.store import (
    dead_letter_reasons,
    file_operations,
    group_commit,
    message_lookup,
    message_validation,
    receipts,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction, VerifiedMessage
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import (
    PLACES,
    MessageFile,
    Place,
    Stem,
    foreign_stem,
    is_message_id,
    is_store_id,
    parse,
    printable,
    receipt_name,
)
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.index import inbox_comparison, inbox_index
from switchboard_mcp.mail.store.index.inbox_comparison import FirstFiles, InboxComparison, changes_of
from switchboard_mcp.mail.store.index.inbox_index import (
    HIGHEST_ORDER,
    RELIST_S,
    InboxView,
    IndexRow,
    first_names,
    stamp_of,
)
from switchboard_mcp.mail.store.maintenance import cleanup
from switchboard_mcp.mail.store.ordering import QueuedPosition, claim_order
from switchboard_mcp.mail.store.sending import OutgoingMessage

# A message is published this soon after it got its order number; a file that came later was moved or copied here.
PUBLISHED_WITHIN_S = 2.0
# Dead letters of files in `inbox/` that are in no agent's folder.
UNADDRESSED = "unaddressed"
# Smaller inboxes are listed quickly, so they get no index.
MIN_INDEXED = 128
# New files that are read at once, which takes about 0.1 s. The first look at a large inbox without an index shows the
# oldest messages, and the rest is read in pieces.
MAX_READ = 2_000
# Messages that a look finds before the first unread file, if another process reads the files.
READY = 200
# The first files of an inbox with very many, which are in its index before all others.
FIRST_FILES = 10_000
# The files that are added to it at a time after these, for which the folder is listed once: some 50 MiB.
MORE_FILES = 250_000
# Pauses before a folder is listed because its index does not fit: a writer changes both within this time.
INDEX_PAUSES_S = (0.0002, 0.001, 0.0)
# A large inbox is compared with its index without a reason so seldom that this many files a second are read at most.
COMPARED_PER_S = 100
# The lock of the process that sweeps. It is touched every few seconds; after `STALLED_S` without, that process is
# stopped or hangs, and others help.
SWEEPER_LOCK = "sweeper"
STALLED_S = 20.0
# How long a reader waits for another process that delivers the same inbox.
DELIVERY_WAIT_S = 2.0
# A file that cannot be parsed may still be being written.
SETTLE_S = 1.0
_LONGEST_KEPT_NAME = 120


class Inbox(msgspec.Struct):
    """Contents of an inbox: from its index, or from a listing."""

    dropped: list[str]
    view: InboxView | None = None
    waiting: list[VerifiedMessage] = []
    retry_soon: bool = False
    """True if a file may still be being written and should be checked again soon."""
    partial: bool = False
    """True if there are more new files than are read at once: the others are not in it yet."""

    def first(self, limit: int, *, after: int = 0, exclude: Collection[str] = ()) -> list[MessageFile]:
        """Return the first messages in claim order, without those up to an order or with these ids."""
        if self.view is not None:
            return first_names(self.view, limit, after, exclude)
        entries = self._in_claim_order()
        if after or exclude:
            entries = [e for e in entries if e.stem.order > after and e.stem.id not in exclude]
        return entries[: max(0, limit)]

    def count(self) -> int:
        """Return the number of messages."""
        return len(self.waiting) if self.view is None else self.view.count()

    def newest(self) -> int:
        """Return the highest order number; 0 if there is no message."""
        if self.view is not None:
            return self.view.newest()
        return max((each.entry.stem.order for each in self.waiting), default=0)

    def with_ids(self, ids: Collection[str]) -> list[MessageFile]:
        """Return the messages with these ids, in order."""
        if self.view is None:
            return [entry for entry in self._in_claim_order() if entry.stem.id in ids]
        entries = (parse("inbox", name) for name in self.view.with_ids(ids))
        return sorted((entry for entry in entries if entry), key=lambda entry: entry.stem.order)

    def _in_claim_order(self) -> list[MessageFile]:
        waiting = self.waiting
        if all(each.priority == "normal" for each in waiting):
            return [each.entry for each in waiting]
        turns = claim_order(
            [QueuedPosition(each.entry.stem.order, each.sender, each.priority) for each in waiting]
        )
        return [waiting[place].entry for place in turns]


class _Listing(msgspec.Struct):
    """The files of an inbox by what is known about them; temporary files are left out."""

    messages: dict[str, VerifiedMessage] = {}
    dropped: list[str] = []
    unread: dict[str, int] = {}
    """Inodes of files that are named like messages and were not read yet, by name."""

    def inbox(self) -> Inbox:
        """Return the contents, up to the first file that was not read."""
        # Names begin with the order number, so sorting by name sorts by order.
        first = min(self.unread, default=None)
        waiting = [each for name, each in self.messages.items() if first is None or name < first]
        return Inbox(self.dropped, waiting=waiting, partial=first is not None)

    def rows(self) -> dict[str, IndexRow]:
        """Return everything for the index."""
        rows = {
            name: IndexRow(name, each.inode, each.sender, each.priority)
            for name, each in self.messages.items()
        }
        rows |= {name: IndexRow(name, 0) for name in self.dropped}
        return rows | {name: IndexRow(name, inode, unread=True) for name, inode in self.unread.items()}


def scan(
    tx: Transaction, agent: str, *, listing: bool = False, changed: Collection[str] | None = None
) -> Inbox:
    """Return the delivered messages and the names of dropped files; from the folder itself if `listing`.

    Reads at most MAX_READ files; then the answer is partial, and the next one has more. Until all are read, even
    `listing` does not list the folder again. A large inbox is compared with its index instead, in pieces; if the caller
    has watched it, only the files that have `changed` are.
    """
    if not tx.has("inbox", agent):
        return Inbox([])
    index = tx.directory.index
    if listing and _check_large(tx, agent, changed):
        return Inbox([], partial=True)
    indexed = _scan_index(tx, agent, listing=listing and not index.is_large(agent), background=listing)
    if indexed is not None:
        return indexed
    begin_large(tx, agent)
    if (latest := _latest(tx, agent, background=listing)) is not None:
        return latest
    found = _list(tx, agent, MAX_READ)
    if not found.unread:
        tx.directory.unsigned.pop(agent, None)
    large = len(found.messages) + len(found.unread) >= MIN_INDEXED
    if index.exact and (large or index.has(agent)) and not tx.holds(agent):
        _write_index(tx, agent, found)
    return found.inbox()


def _scan_index(tx: Transaction, agent: str, *, listing: bool, background: bool) -> Inbox | None:
    """Return the contents from the index, after reading some files that it says are unread; None if it is not right."""
    index, folder = tx.directory.index, tx.folder("inbox", agent)
    for pause_s in INDEX_PAUSES_S:
        stamp = stamp_of(folder)
        view = index.view(agent, stamp, partial=True)
        if view is not None and _must_read(tx, agent, view, background=background):
            _read_piece(tx, agent, view.unread(MAX_READ), background=background)
            view = index.view(agent, stamp, partial=True)
            if view is not None:
                tx.trust_index(agent, stamp)
                return Inbox(view.dropped(), view, partial=view.partial or listing)
        if listing:
            return None
        if view is not None:
            tx.trust_index(agent, stamp)
            return Inbox(view.dropped(), view, partial=view.partial)
        if not index.has(agent):
            return None
        # A writer may be between its change and the update of the index.
        time.sleep(pause_s)
    return None


def _must_read(tx: Transaction, agent: str, view: InboxView, *, background: bool) -> bool:
    """Return True if unread files are to be read now: few messages are known before them, or nobody else does."""
    if not view.partial or tx.holds(agent):
        return False
    return background or not view.has_first(READY) or not is_swept(tx)


def _check_large(tx: Transaction, agent: str, changed: Collection[str] | None) -> bool:
    """Bring the index of a large inbox up to date; returns True if that takes more pieces.

    `changed` has the files that have changed since the last time, or is None if that is unknown.
    """
    index, folder = tx.directory.index, tx.folder("inbox", agent)
    if not index.is_large(agent) or tx.holds(agent):
        return False
    comparisons = tx.directory.comparisons()
    exact = index.view(agent, stamp_of(folder), partial=True)
    if exact is None:
        with tx.locked_to_read(agent):  # A writer may be between its change and the update of the index.
            exact = index.view(agent, stamp_of(folder), partial=True)
    view = index.latest(agent)
    if view is None:
        return False
    is_checked = view.is_listed and agent not in comparisons
    if changed and is_checked:
        # Those of the store too: the index may be right for a state that has a change by others as well.
        _correct(tx, agent, changed, exact=True)
        return False
    if exact is not None and is_checked:
        age = abs(time.time() - exact.listed_at)
        if age < max(RELIST_S, exact.count() / COMPARED_PER_S):
            return False
    if changed:
        _correct(tx, agent, changed, exact=False)
        view = index.latest(agent) or view
    if view.known_until is not None and view.known_until < HIGHEST_ORDER:
        _build_piece(tx, agent, view)
        return True
    current = comparisons.get(agent)
    if current is None or current.listed_at != view.listed_at:
        current = comparisons[agent] = InboxComparison(folder, stamp_of(folder), view.listed_at)
    if current.advance(folder, view):
        if len(current.differing) >= inbox_comparison.PIECE // 2:
            differing, current.differing = current.differing, set()
            _correct(tx, agent, differing, exact=False)
        return True
    del comparisons[agent]
    # What came meanwhile is known to those who watch the folder.
    _correct(tx, agent, current.differing, exact=changed is not None or stamp_of(folder) == current.stamp)
    index.mark_listed(agent, current.listed_at)
    return False


def _correct(tx: Transaction, agent: str, names: Collection[str], *, exact: bool) -> bool:
    """Make the index right for these files; if `exact`, it is right for the folder then. Returns False if it fails."""
    folder, index = tx.folder("inbox", agent), tx.directory.index
    try:
        with tx.locked(agent):
            stamp = stamp_of(folder)
            is_right = index.view(agent, stamp, partial=True) is not None
            view = index.latest(agent)
            if view is None:
                return False
            added, removed = changes_of(folder, view, names)
            if is_right and (added or removed):
                # Readers keep what they know of a state of the folder, so it gets another one.
                stamp += 1
                os.utime(folder, ns=(stamp, stamp))
            if added or removed or (exact and not is_right):
                return index.correct(agent, stamp if exact else None, added, removed)
    except (OSError, SwitchboardError):
        return False  # Read-only, or the lock is held for long: the next sweep tries again.
    return True


def begin_large(tx: Transaction, agent: str) -> None:
    """Begin the index of an inbox that has none, if there are too many files to list them at once."""
    folder, index = tx.folder("inbox", agent), tx.directory.index
    may_write = index.exact and index.usable and not tx.directory.read_only and not tx.holds(agent)
    # Every file system counts at least one for each file.
    if not may_write or os.fstat(folder).st_size <= inbox_index.LARGE or index.is_large(agent):
        return
    if next(islice(file_operations.each_name(folder), inbox_index.LARGE, None), None) is None:
        return
    try:
        with tx.locked(agent):
            if index.latest(agent) is None:
                index.begin(agent)
    except (OSError, SwitchboardError):
        return  # The lock is held for long: the folder is listed.


def _add_first(tx: Transaction, agent: str, view: InboxView) -> None:
    """Add the files that come first after the known ones to the index of a large inbox."""
    files = FirstFiles(tx.folder("inbox", agent), view.known_until or 0, FIRST_FILES, view.listed_at)
    while _add_found(tx, agent, files):
        pass


def _add_found(tx: Transaction, agent: str, files: FirstFiles) -> bool:
    """Add a piece to the index; returns False at the end, or if that failed."""
    found = files.advance()
    if found is not None:
        names, known_until = found
        if not _correct(tx, agent, names, exact=False):
            return False
        tx.directory.index.extend(agent, known_until, files.listed_at)
    return not files.has_ended


def _build_piece(tx: Transaction, agent: str, view: InboxView) -> None:
    """Add some files to an index that does not have all of them yet."""
    building = tx.directory.buildings()
    files = building.get(agent)
    if files is None or files.listed_at != view.listed_at:
        folder = tx.folder("inbox", agent)
        files = building[agent] = FirstFiles(folder, view.known_until or 0, MORE_FILES, view.listed_at)
    if not _add_found(tx, agent, files):
        del building[agent]


def _latest(tx: Transaction, agent: str, *, background: bool) -> Inbox | None:
    """Return the contents of a large inbox that another program has changed, as they are known.

    The process that sweeps learns of the change. Without one, the inbox is compared now.
    """
    index = tx.directory.index
    if not index.is_large(agent):
        return None
    if not is_swept(tx) and not tx.directory.read_only and not tx.holds(agent):
        while _check_large(tx, agent, None):
            pass
    view = index.latest(agent)
    if view is not None and view.lacks_first() and not tx.holds(agent):
        _add_first(tx, agent, view)
        view = index.latest(agent)
    if view is not None and _must_read(tx, agent, view, background=background):
        _read_piece(tx, agent, view.unread(MAX_READ), background=background)
        view = index.latest(agent)
    return None if view is None else Inbox(view.dropped(), view, partial=view.partial)


def is_swept(tx: Transaction) -> bool:
    """Return True if a process sweeps this workspace."""
    try:
        descriptor = file_operations.open_lock(tx.folder("locks"), SWEEPER_LOCK)
    except OSError:
        return False
    try:
        if file_operations.try_lock(descriptor):
            return False
        return abs(time.time() - os.fstat(descriptor).st_mtime) < STALLED_S
    finally:
        os.close(descriptor)


def _read_piece(
    tx: Transaction, agent: str, files: Sequence[tuple[str, int]], *, background: bool = False
) -> None:
    """Read files that the index has by name alone; in the background, not those that need segments without an index."""
    elsewhere = _OtherPlaces(tx, agent)
    unsigned = tx.directory.unsigned.setdefault(agent, {})
    rows = []
    tx.waits_for_segments = not background
    for name, inode in files:
        try:
            known = _read_verified(tx, agent, name, elsewhere)
        except day_segments.SegmentsNotIndexedError:
            break
        if known is None:
            unsigned[name] = inode
        rows.append(
            IndexRow(name, 0) if known is None else IndexRow(name, known.inode, known.sender, known.priority)
        )
    tx.waits_for_segments = True
    tx.directory.index.mark_read(agent, rows)


def _list(tx: Transaction, agent: str, most: int) -> _Listing:
    """List the folder, and read new files, at most so many. A file known by name and inode is not read again."""
    found = _Listing({}, [], {})
    before = tx.directory.verified.get(agent)
    if before is None:
        before = _from_index(tx.directory.index.known(agent))
    published = tx.directory.published.pop(agent, {})
    elsewhere = _OtherPlaces(tx, agent)
    # Until all files are read, so that the next piece has others.
    unsigned = tx.directory.unsigned.setdefault(agent, {})
    for name, inode in sorted(file_operations.entries(tx.folder("inbox", agent))):
        known = before.get(name) or published.get(name)
        if known is None or known.inode != inode:
            if name.startswith(".") or name.endswith(".tmp"):
                continue
            if unsigned.get(name) == inode or parse("inbox", name) is None:
                found.dropped.append(name)
                continue
            if most <= 0:
                found.unread[name] = inode
                continue
            most -= 1
            known = _read_verified(tx, agent, name, elsewhere)
        if known is not None:
            found.messages[name] = known
        else:
            found.dropped.append(name)
            unsigned[name] = inode
    # Entries of removed files are forgotten.
    tx.directory.verified[agent] = found.messages
    return found


def _from_index(rows: dict[str, IndexRow]) -> dict[str, VerifiedMessage]:
    known = {}
    for name, row in rows.items():
        entry = parse("inbox", name) if row.sender and row.inode else None
        if entry is not None:
            known[name] = VerifiedMessage(entry, row.inode, row.sender, row.priority)
    return known


def _write_index(tx: Transaction, agent: str, found: _Listing) -> None:
    """Write what a listing has found, then list again under the lock and add what has changed meanwhile."""
    folder, index = tx.folder("inbox", agent), tx.directory.index
    rows = found.rows()
    # A state that no folder has, and no other process that does the same.
    unknown = -2 - int.from_bytes(urandom(7), "big")
    try:
        index.write(agent, unknown, rows.values())
        with tx.locked(agent):
            stamp = stamp_of(folder)
            now = _list(tx, agent, 0).rows()
            added = [row for name, row in now.items() if rows.get(name) != row]
            index.update(agent, unknown, stamp, added, rows.keys() - now.keys())
    except (OSError, SwitchboardError):
        return  # Read-only, or the lock is held for long: the listing serves as well.
    # The index remembers them from now on.
    tx.directory.verified.pop(agent, None)


class _OtherPlaces:
    """The messages of an agent outside its inbox: in folders, which are listed once if needed, and in segments."""

    def __init__(self, tx: Transaction, agent: str) -> None:
        self._tx = tx
        self._agent = agent
        self._stems: set[str] | None = None

    def has(self, stem: Stem) -> bool:
        if self._stems is None:
            places: tuple[Place, ...] = ("claimed", "shipped", "archive", "deadletter")
            # A message's name is its stem in every place, and what follows a dot. The reason of a dead letter may
            # outlive it: a process that requeues one removes it last.
            self._stems = {
                name.partition(".")[0]
                for place in places
                for name in self._tx.names(place, self._agent)
                if not name.endswith(dead_letter_reasons.SUFFIX)
            }
        return str(stem) in self._stems or message_lookup.is_packed(self._tx, self._agent, stem)


def _read_verified(
    tx: Transaction, agent: str, name: str, elsewhere: _OtherPlaces | None = None
) -> VerifiedMessage | None:
    """Read the facts about a delivered message; None if it has no valid signature."""
    entry = parse("inbox", name)
    if entry is None:
        return None
    content = file_operations.read(tx.folder("inbox", agent), name, signing.MAX_FILE_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return None
    message = signing.verify(tx.signing_key(), entry.stem, agent, content.data)
    if message is None:
        return None
    elsewhere = elsewhere or _OtherPlaces(tx, agent)
    if _is_copy(tx, entry, message.sender, content, elsewhere):
        return None
    return VerifiedMessage(entry, content.inode, message.sender, message.priority)


def is_signed(tx: Transaction, agent: str, name: str, data: bytes) -> bool:
    """Return True if this is the content of a message that was delivered under this name."""
    entry = parse("inbox", name)
    return entry is not None and signing.verify(tx.signing_key(), entry.stem, agent, data) is not None


def _is_copy(
    tx: Transaction,
    entry: MessageFile,
    sender: str,
    content: file_operations.FileContent,
    elsewhere: _OtherPlaces,
) -> bool:
    """Return True if this signed message was settled before, or is in another place too.

    Looks into the other places only if the file came later than its order number, or has other names; so new messages
    cost no listing.
    """
    came_later = content.links > 1 or abs(content.changed - entry.stem.order / 1e6) > PUBLISHED_WITHIN_S
    # A receipt is packed long after its message was moved.
    settled = is_settled(tx, sender, entry.stem, packed=came_later)
    if settled and is_store_id(entry.stem.id):
        return True
    return (settled or came_later) and elsewhere.has(entry.stem)


def is_settled(tx: Transaction, sender: str, stem: Stem, *, packed: bool = True) -> bool:
    """Return True if there is a receipt with an outcome, in segments too if `packed`.

    Dropped files to several agents may share an id.
    """
    if not tx.has("outbox", sender):
        return False
    outbox, names = tx.folder("outbox", sender), [receipt_name(stem.id, outcome) for outcome in OUTCOMES]
    if any(file_operations.exists(outbox, name) for name in names):
        return True
    return packed and any(each.name in names for each in day_segments.find(tx, "outbox", sender, stem.id))


def is_delivered(tx: Transaction, agent: str, entry: MessageFile) -> bool:
    """Return True if this is a delivered message and not a dropped file named like one."""
    return entry.place != "inbox" or _read_verified(tx, agent, entry.name) is not None


def deliver(
    tx: Transaction,
    agent: str,
    rules: Sequence[DeliveryRule],
    *,
    wait_s: float = DELIVERY_WAIT_S,
    listing: bool = False,
    changed: Collection[str] | None = None,
) -> tuple[Inbox, list[Delivery]]:
    """Deliver all dropped files and scan the inbox again.

    One process at a time delivers the files of an agent, so they keep their order and are written once. If another
    one takes longer than `wait_s`, it is left to finish.
    """
    inbox = scan(tx, agent, listing=listing, changed=changed)
    # Dropped files keep their order only if all of them are known.
    if not inbox.dropped or inbox.partial:
        return inbox, []
    with tx.delivering(agent, wait_s) as alone:
        if alone:
            return _deliver_all(tx, agent, rules)
    inbox = scan(tx, agent)
    inbox.retry_soon = bool(inbox.dropped)
    return inbox, []


def _deliver_all(tx: Transaction, agent: str, rules: Sequence[DeliveryRule]) -> tuple[Inbox, list[Delivery]]:
    inbox = scan(tx, agent)
    if not inbox.dropped:
        return inbox, []
    ordered = sorted(inbox.dropped, key=lambda name: (_changed(tx, agent, name), name))
    outcomes = group_commit.run(tx, [_deliver_one(tx, agent, name, rules) for name in ordered])
    # A file that could not be stored is still there and will be retried.
    deliveries = [
        _set_aside(tx, agent, name, outcome)
        if isinstance(outcome, Exception)
        else (None if isinstance(outcome, Failure) else outcome)
        for name, outcome in zip(ordered, outcomes, strict=True)
    ]
    rescanned = scan(tx, agent)
    rescanned.retry_soon = any(each is None for each in deliveries)
    return rescanned, [each for each in deliveries if each is not None]


def _set_aside(tx: Transaction, agent: str, name: str, problem: Exception) -> Delivery | None:
    """Dead-letter a file whose delivery ended in an unexpected error, so that it does not stop the others."""
    reason = f"its delivery failed with {type(problem).__name__}"
    (outcome,) = group_commit.run(tx, [_dead_letter(tx, agent, name, _not_a_message(agent, name, reason))])
    return outcome if isinstance(outcome, Delivery) else None


def collect_misplaced(tx: Transaction) -> tuple[set[str], list[Delivery]]:
    """Move files from folders such as `inbox/Coder 1` to the inbox of the agent, and dead-letter those of no agent.

    Returns the agents whose inboxes may have changed, and the deliveries of the latter.
    """
    agents: set[str] = set()
    deliveries: list[Delivery] = []
    for name in tx.names("inbox"):
        if is_agent_name(name) or name.startswith(".") or name.endswith(".tmp"):
            continue
        agent = agent_name(name)
        try:
            if agent is not None and tx.has("inbox", name):
                _move_to_agent(tx, name, agent)
                agents.add(agent)
            else:
                deliveries += _refuse_misplaced(tx, name)
        except OSError:
            continue  # A link: reported by `verify`.
        except Exception as problem:  # noqa: BLE001 - one entry must not stop the delivery of the others
            deliveries += report_once(tx, printable(name), name, problem)
    return agents, deliveries


def report_once(tx: Transaction, agent: str, place: str, problem: Exception) -> list[Delivery]:
    """Report a place that cannot be handled, unless that was done before."""
    if place in tx.directory.unsafe:
        return []
    tx.directory.unsafe.add(place)
    if isinstance(problem, SwitchboardError):
        found = problem.failure
    elif isinstance(problem, OSError):
        found = file_operations.failure_for(problem, f"{tx.directory.path}/inbox/{agent}")
    else:
        found = failure("mail_not_stored", f"The inbox of '{agent}' cannot be handled: {problem!r}.")
    return [Delivery(agent=agent, file="", problem=found)]


def has_misplaced(tx: Transaction, agent: str) -> bool:
    """Return True if there are files for this agent in a folder such as `inbox/Coder 1`."""
    try:
        return any(
            tx.names("inbox", name)
            for name in tx.names("inbox")
            if not is_agent_name(name) and agent_name(name) == agent
        )
    except (OSError, SwitchboardError):
        return False


def _move_to_agent(tx: Transaction, folder: str, agent: str) -> None:
    source, target = tx.folder("inbox", folder), tx.folder("inbox", agent, make=True)
    if file_operations.is_same(source, target):
        return  # A file system that ignores case.
    with tx.locked(agent):
        for name in file_operations.names(source):
            if name.startswith(".") or name.endswith(".tmp"):
                continue
            try:
                tx.move(source, name, target, name)
            except FileExistsError:
                tx.move(source, name, target, f"{name.removesuffix('.json')}-{urandom(4).hex()}.json")
    tx.sync_folders()


def _refuse_misplaced(tx: Transaction, entry: str) -> list[Delivery]:
    """Dead-letter a file in `inbox/` itself, or the files in a folder that no agent can have."""
    try:
        names = [
            name for name in tx.names("inbox", entry) if not name.startswith(".") and name[-4:] != ".tmp"
        ]
        place: tuple[str, ...] = ("inbox", entry)
        problem = f"'{printable(entry)}' is not a valid agent name, so nobody reads inbox/{printable(entry)}."
    except OSError:
        names, place = [entry], ("inbox",)
        problem = (
            f"'{printable(entry)}' is in inbox/ itself. A message belongs in the folder of its recipient."
        )
    deliveries = []
    for name in names:
        source = tx.folder(*place)
        content = file_operations.read_unshared(source, name, signing.MAX_FILE_BYTES)
        data = b"" if isinstance(content, file_operations.RejectedFile) else content.data
        refusal = failure("mail_name_invalid", problem)
        job = _dead_letter(tx, UNADDRESSED, name, refusal, data, source=source)
        (outcome,) = group_commit.run(tx, [job])
        if isinstance(outcome, Delivery):
            deliveries.append(msgspec.structs.replace(outcome, agent=printable(entry)))
    return deliveries


def _changed(tx: Transaction, agent: str, name: str) -> float:
    mtime = file_operations.mtime(tx.folder("inbox", agent), name)
    return 0.0 if mtime is None else mtime


def _deliver_one(
    tx: Transaction, agent: str, name: str, rules: Sequence[DeliveryRule]
) -> Job[Delivery | None]:
    """Deliver one dropped file; None if it must be retried later."""
    inbox = tx.folder("inbox", agent)
    content = file_operations.read(inbox, name, signing.MAX_FILE_BYTES)
    if isinstance(content, file_operations.FileContent) and content.links > 1:
        if _is_being_moved(tx, agent, name):
            return None
        signed = is_signed(tx, agent, name, content.data)
        content = content if signed else file_operations.LINKED
    if isinstance(content, file_operations.RejectedFile):
        if content.gone:
            return None
        return (yield from _dead_letter(tx, agent, name, _not_a_message(agent, name, content.reason)))
    if (entry := parse("inbox", name)) and is_signed(tx, agent, name, content.data):
        return (yield from _refuse_copy(tx, agent, entry))
    if not message_validation.has_message_name(name):
        if _is_fresh(tx, agent, name):
            return None
        problem = _not_a_message(agent, name, "its name does not match msg_….json")
        return (yield from _dead_letter(tx, agent, name, problem))
    message = message_validation.from_file(content.data, agent, name, tx.clocks.iso())
    if isinstance(message, Failure):
        if _is_fresh(tx, agent, name):
            return None
        return (yield from _dead_letter(tx, agent, name, message, content.data))
    return (yield from _accept(tx, agent, name, message, rules, content.data))


def _refuse_copy(tx: Transaction, agent: str, entry: MessageFile) -> Job[Delivery | None]:
    """Dead-letter a message that was settled before; a message that is moved meanwhile is left alone."""
    with tx.locked(agent):
        if _read_verified(tx, agent, entry.name) is not None:
            return None
        content = file_operations.read(tx.folder("inbox", agent), entry.name, signing.MAX_FILE_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return None
    text = f"Message '{entry.stem.id}' was settled before, or is in another place. Its copy is not delivered."
    return (
        yield from _dead_letter(
            tx, agent, entry.name, failure("mail_message_invalid", text, hint="Send it again."), content.data
        )
    )


def _accept(
    tx: Transaction, agent: str, name: str, message: MailMessage, rules: Sequence[DeliveryRule], data: bytes
) -> Job[Delivery | None]:
    inbox = tx.folder("inbox", agent)
    if _is_id_taken(tx, agent, name, message.id):
        problem = failure(
            "mail_message_invalid",
            f"Message id '{message.id}' is already used by another message to '{agent}'.",
        )
        return (yield from _dead_letter(tx, agent, name, problem, data))
    try:
        outgoing = OutgoingMessage(tx, message, rules, dropped_id=message.id)
    except SwitchboardError as refused:
        return (yield from _dead_letter(tx, agent, name, refused.failure, data))
    yield outgoing.write()
    with tx.locked(agent):
        if not file_operations.exists(inbox, name):
            return None  # Delivered by another process.
        full = _publish(outgoing)
    if full is not None:
        return (yield from _dead_letter(tx, agent, name, full, data))
    # Remove the dropped file only once the delivered message is durable.
    yield None
    with tx.locked(agent):
        if file_operations.exists(inbox, name):
            tx.remove(inbox, name)
    return Delivery(agent=agent, file=name, id=outgoing.finish().id, sender=message.sender)


def _publish(outgoing: OutgoingMessage) -> Failure | None:
    """Publish a message, or return why there is no room for it."""
    try:
        outgoing.publish()
    except SwitchboardError as refused:
        return refused.failure
    return None


def _is_id_taken(tx: Transaction, agent: str, name: str, message_id: str) -> bool:
    """Return True if a dropped file uses an id that the store has assigned to another message."""
    if not is_store_id(message_id):
        return False
    # The file itself may be named after the id; do not match it.
    places = [place for place in PLACES if place != "inbox" or name != f"{message_id}.json"]
    entry = message_lookup.find(tx, agent, message_id, places)
    return entry is not None and not entry.stem.tail.startswith("file-")


def _dead_letter(
    tx: Transaction, agent: str, name: str, problem: Failure, data: bytes = b"", *, source: int | None = None
) -> Job[Delivery | None]:
    """Dead-letter an invalid file and send a receipt to its sender, if it names one. `source` is its folder."""
    inbox = tx.folder("inbox", agent) if source is None else source
    dead = tx.folder("deadletter", agent, make=True)
    message_id, sender = _claimed_identity(data, name)
    stem = foreign_stem(tx.next_number())
    reason = tx.write(dead_letter_reasons.encode_reason(tx, name, problem))
    receipt = None
    if sender and message_id:
        content = receipts.refused_receipt(message_id, agent, problem, tx.clocks.iso())
        receipt = tx.write(receipts.encode(content))
    yield [reason, *([receipt] if receipt else [])]
    with tx.locked(agent):
        if not file_operations.exists(inbox, name):
            return None
        tx.publish(reason, dead, f"{stem}{dead_letter_reasons.SUFFIX}")
        tx.move(inbox, name, dead, f"{stem}_{_safe_name(name)}")
    yield None
    if receipt is not None:
        receipts.publish_first(tx, receipt, sender, message_id)
    return Delivery(
        agent=agent, file=printable(name), id=message_id or None, sender=sender or None, problem=problem
    )


def _claimed_identity(data: bytes, name: str) -> tuple[str, str]:
    """Return the id and sender claimed by an invalid message, or empty strings if unusable."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    if not isinstance(content, dict):
        return "", ""
    message_id, sender = content.get("id", name.removesuffix(".json")), content.get("sender")
    if not isinstance(message_id, str) or not is_message_id(message_id) or not isinstance(sender, str):
        return "", ""
    return message_id, agent_name(sender) or ""


def _is_being_moved(tx: Transaction, agent: str, name: str) -> bool:
    """Return True if a second name stems from a two-step move in progress; repairs one interrupted by a crash."""
    if _is_fresh(tx, agent, name):
        return True
    cleanup.remove_stale_temp_files(tx)
    with tx.locked(agent):
        cleanup.finish_interrupted_moves(tx, agent)
    inbox = tx.folder("inbox", agent)
    return not file_operations.exists(inbox, name) or file_operations.links(inbox, name) == 1


def _is_fresh(tx: Transaction, agent: str, name: str) -> bool:
    changed = file_operations.mtime(tx.folder("inbox", agent), name)
    if changed is None:
        return True
    # File times come from the system clock, even if tests pass in other clocks.
    age = time.time() - changed
    return -SETTLE_S < age < SETTLE_S


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-_LONGEST_KEPT_NAME:]


def _not_a_message(agent: str, name: str, reason: str) -> Failure:
    return failure(
        "mail_message_invalid", f"'{printable(name)}' in the inbox of '{agent}' is not a message: {reason}."
    )
