"""Results that hosts have seen only a part of, kept for a while under a handle.

A handle belongs to the session that got it or, after that has ended, to the principal that it leaves it to. Results
beyond the limit of memory move to files that have no name: only this process can read them, and they disappear when it
ends, however it ends.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections import OrderedDict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.json import encode

from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.suites.twins import TwinSuite
from switchboard_mcp.suites.results.answers import is_json, read_result
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.gateway.client_requests.client_request import ClientRequests
    from switchboard_mcp.gateway.incoming import IncomingRequest
    from switchboard_mcp.gateway.session import Session

# For all suites together. The oldest results move to files, and the oldest in files are dropped.
MAX_BYTES = 32 * 1024 * 1024
MAX_FILE_BYTES = 256 * 1024 * 1024
# Each file is an open descriptor.
MAX_FILES = 64
# Small results are bounded by their number.
MAX_HANDLES = 4_096
# Three digits are one token for most models. The owner is checked as well, so these need not be as long as a key.
HANDLE_DIGITS = 12
MAX_LISTED = 50
SCHEME = "switchboard-result:"


class HandleEntry(Struct):
    """A result and whose it is: the whole of it, or a part that was selected from one. `shown` is the beginning that
    the host has seen, in characters.
    """

    handle: str
    session: Session
    suite: str
    subtool: str
    form: str  # in which the text is shown: as it is (empty), `compact` or `table`
    shown: int
    tokens: int
    size: int
    body: bytes = b""
    file: int = -1  # a descriptor
    expires_at: float = 0.0
    shown_end: int = 0  # characters of the end that the host has seen with the beginning
    pages: set[int] = set()  # those that were read

    @property
    def uri(self) -> str:
        """The address of the resource."""
        return SCHEME + self.handle

    def read(self) -> bytes:
        """Return the result. Not for the event loop: it may be in a file."""
        file, body = self.file, self.body
        return body if file < 0 else os.pread(file, self.size, 0)


class HandleStore:
    """The results of all suites, the oldest first, within limits of time, memory and files."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._now = loop.time
        self._entries: OrderedDict[str, HandleEntry] = OrderedDict()
        self._in_memory: OrderedDict[str, HandleEntry] = OrderedDict()
        self._in_files: OrderedDict[str, HandleEntry] = OrderedDict()
        self._memory_bytes = 0
        self._file_bytes = 0

    def put(self, entry: HandleEntry, keep_s: float) -> None:
        """Keep a result."""
        entry.expires_at = self._now() + keep_s
        self._entries[entry.handle] = self._in_memory[entry.handle] = entry
        self._memory_bytes += entry.size
        self._loop.call_later(keep_s + 1, self._expire, entry.handle)
        while self._memory_bytes > MAX_BYTES and self._in_memory:
            self._spill(next(iter(self._in_memory.values())))
        while len(self._entries) > MAX_HANDLES:
            self._drop(next(iter(self._entries)))

    def get(self, handle: str, session: Session) -> HandleEntry | None:
        """Return a result that the session may read, or None."""
        entry = self._entries.get(handle)
        if entry is None or entry.expires_at < self._now() or not session.may_use_of(entry.session):
            return None
        return entry

    def resource_entries(self, session: Session) -> list[dict[str, Raw]]:
        """Return the results that the session may read as entries of `resources/list`, the newest first."""
        now, suites = self._now(), _suites(session)
        entries = (
            entry
            for entry in reversed(self._entries.values())
            if entry.expires_at >= now and session.may_use_of(entry.session) and entry.suite in suites
        )
        return [
            {
                "uri": Raw(encode(entry.uri)),
                "name": Raw(encode(f"{entry.suite} {entry.subtool}")),
                "size": Raw(encode(entry.size)),
            }
            for entry in islice(entries, MAX_LISTED)
        ]

    def answers_read(self, inbound: IncomingRequest, uri: str) -> bool:
        """Answer a request for the resource of a result; return False if the host may not read it."""
        session = inbound.session
        entry = self.get(uri.removeprefix(SCHEME), session) if uri.startswith(SCHEME) else None
        if entry is None or entry.suite not in _suites(session):
            return False

        def answer(content: dict[str, str] | Exception) -> None:
            if isinstance(content, Exception):
                inbound.fail(failure("internal", "The result cannot be read."))
            else:
                inbound.answer(encode({"contents": [content]}))

        work_thread.submit(session, partial(_resource, entry), answer)
        return True

    def _spill(self, entry: HandleEntry) -> None:
        """Move a result to a file. It can be read meanwhile."""
        del self._in_memory[entry.handle]
        self._memory_bytes -= entry.size

        def done(file: int | Exception) -> None:
            if isinstance(file, Exception):  # no room, or no permission
                self._drop(entry.handle)
                return
            if entry.handle not in self._entries:  # dropped meanwhile
                os.close(file)
                return
            entry.file, entry.body = file, b""
            self._in_files[entry.handle] = entry
            self._file_bytes += entry.size
            while self._file_bytes > MAX_FILE_BYTES or len(self._in_files) > MAX_FILES:
                self._drop(next(iter(self._in_files)))

        work_thread.submit(work_thread.OWN, partial(_write, entry.body), done)

    def _expire(self, handle: str) -> None:
        entry = self._entries.get(handle)
        if entry is not None and entry.expires_at < self._now():
            self._drop(handle)

    def _drop(self, handle: str) -> None:
        entry = self._entries.pop(handle, None)
        if entry is None:
            return
        if self._in_memory.pop(handle, None) is not None:
            self._memory_bytes -= entry.size
        if self._in_files.pop(handle, None) is not None:
            self._file_bytes -= entry.size
            # In the thread that reads: what it reads now, it may finish.
            work_thread.submit(work_thread.OWN, partial(os.close, entry.file), lambda _: None)


def open_store(broker: ClientRequests) -> HandleStore:
    """Return the store that all suites of a gateway share."""
    store = broker.results
    if not isinstance(store, HandleStore):
        broker.results = store = HandleStore(broker.loop)
    return store


def _resource(entry: HandleEntry) -> dict[str, str]:
    kept = read_result(entry.read())
    if kept is None:
        raise ValueError("the result has no content")
    kind = "application/json" if is_json(kept.text) else "text/plain"
    return {"uri": entry.uri, "mimeType": kind, "text": kept.text}


def new_handle() -> str:
    """Return a handle that cannot be guessed."""
    return f"r{int.from_bytes(os.urandom(8), 'big') % 10**HANDLE_DIGITS:0{HANDLE_DIGITS}}"


def _suites(session: Session) -> set[str]:
    """Return the suites that the session sees; twins are one suite."""
    tools = session.tools.values()
    return {suite.whole_name if isinstance(suite, TwinSuite) else suite.name for suite in tools}


def _write(body: bytes) -> int:
    """Write a result to an unlinked file of mode 0600, and return its descriptor."""
    import tempfile  # only once there is too much to keep in memory

    file, path = tempfile.mkstemp(prefix="switchboard-")
    try:
        os.unlink(path)
        with open(file, "wb", closefd=False) as writer:
            writer.write(body)
    except OSError:
        os.close(file)
        raise
    return file
