"""Cache of what children offer, kept between runs.

One small file per child in the user's cache folder, named by a fingerprint of how the child is started: a different
command, argument or environment makes a different entry. Any file may be missing, stale or unwritable without harm.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from zlib import crc32

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.protocol.apps import ToolUi, tool_ui
from switchboard_mcp.suites import sanitize
from switchboard_mcp.suites.detail_levels import ToolView
from switchboard_mcp.system.atomic_write import write_atomically

FORMAT = 2
# Entries of children that have not run for this long, and the oldest beyond this number, are removed.
MAX_ENTRIES = 1_000
MAX_AGE_S = 90 * 24 * 3600.0
# A temporary file older than this was left by a process that died.
TEMP_FILE_MAX_AGE_S = 3600.0
# A tool with a longer name does not exist for us: the specification allows 128 characters.
MAX_NAME_CHARS = 1_024
# The name of the empty set of client capabilities.
NO_CAPABILITIES = "none"
# Arguments beyond this many are not checked for changed files.
MAX_CHECKED_ARGS = 32


class Annotations(Struct, rename="camel", gc=False):
    """The tool hints that a suite's own hints, the cache and the gate depend on."""

    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    open_world_hint: bool | None = None


class Tool(Struct, rename="camel"):
    """One tool of a child. The schemas stay as the child sent them."""

    name: str
    description: str | None = None
    input_schema: Raw | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    annotations: Annotations | UnsetType | None = UNSET
    raw: Raw | UnsetType = UNSET  # all of it, as the child sent it
    is_sanitized: bool = False

    @property
    def size(self) -> int:
        """The number of bytes that the child sent."""
        return 0 if self.raw is UNSET else len(memoryview(self.raw))

    def sanitized(self) -> Tool:
        """Sanitize the texts for a model, once, and return the tool. `raw` stays as sent."""
        if not self.is_sanitized:
            if self.raw is UNSET or not sanitize.is_plain(self.raw):
                if self.description:
                    self.description = sanitize.for_model(self.description)
                if self.input_schema is not UNSET:
                    self.input_schema = sanitize.clean_schema(self.input_schema)
                if self.output_schema is not UNSET:
                    self.output_schema = sanitize.clean_schema(self.output_schema)
            self.is_sanitized = True  # last: another thread may look meanwhile
        return self

    def whole(self) -> Tool:
        """Return the tool with its texts cleaned as `sanitized` does, but not truncated."""
        try:
            sent = _decode_tool(self.raw) if self.raw is not UNSET else self
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self.sanitized()
        return Tool(
            self.name,
            sanitize.for_model(sent.description or "", sanitize.MAX_SCHEMA_BYTES),
            _clean_whole(sent.input_schema),
            _clean_whole(sent.output_schema),
        )

    def view(self, learned: str = "") -> ToolView:
        """Return the tool as introspection sees it. `learned` is the type of its result, if it declares none."""
        return ToolView(self.name, self.description or "", self.input_schema, self.output_schema, learned)

    @property
    def ui(self) -> ToolUi:
        """What the tool says about its user interface."""
        return tool_ui(self.raw)

    @property
    def task_support(self) -> str:
        """`required` if a server with handshakes runs it as a task only, `optional` if it can; else empty."""
        if self.raw is UNSET or b'"taskSupport"' not in bytes(self.raw):
            return ""
        try:
            support = _decode_execution(self.raw).execution.task_support
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
        return support if support in ("required", "optional") else ""


class _Execution(Struct, rename="camel"):
    task_support: str = ""


class _ToolExecution(Struct):
    """The `execution` member of a tool."""

    execution: _Execution = msgspec.field(default_factory=_Execution)


class _LooseTool(Struct, rename="camel"):
    """A tool with members of the wrong type. It can still be called, so it is still listed."""

    name: str
    description: Raw | UnsetType = UNSET
    input_schema: Raw | UnsetType = UNSET

    def tool(self) -> Tool:
        described = msgspec.json.decode(self.description) if self.description is not UNSET else None
        return Tool(self.name, described if isinstance(described, str) else None, self.input_schema)


class ServerIdentity(Struct):
    """Name and version that a server reports."""

    name: str = ""
    version: str = ""


class ServerSnapshot(Struct, rename="camel", kw_only=True):
    """Everything a server reported about itself."""

    format: int = FORMAT
    server: ServerIdentity = msgspec.field(default_factory=ServerIdentity)
    protocol: str = ""
    requested: str = ""  # the protocol version to request, if the child refuses the newest
    client: str = ""  # the set of client capabilities that was declared to the server
    longest_start_ms: int = 0  # of all starts that are remembered; 0 if none is
    asks_on_its_own: bool = False  # it has sent a request to its client that belongs to no single call
    about: str = ""  # what the server's identity says about it: its description, else its title
    title: str = ""  # the server's name for people
    icons: Raw | UnsetType = UNSET
    instructions: str = ""
    capabilities: dict[str, Raw] = {}
    tools: list[Raw] = []
    lists: dict[str, list[Raw]] = {}  # prompts, resources and templates, by the method that lists them
    extras: dict[str, dict[str, Raw]] = {}  # members of a list result beside its entries, by method


_decode = msgspec.json.Decoder(ServerSnapshot).decode
_decode_execution = msgspec.json.Decoder(_ToolExecution).decode


def _clean_whole(schema: Raw | UnsetType) -> Raw | UnsetType:
    return sanitize.clean_schema(schema, whole=True) if isinstance(schema, Raw) else schema


_decode_tool = msgspec.json.Decoder(Tool).decode
_decode_loose = msgspec.json.Decoder(_LooseTool).decode


def read_tools(raw_tools: list[Raw]) -> list[Tool]:
    """Decode a list of tools. An invalid entry is skipped, so it does not hide the others.

    A schema that is too large to be decoded is replaced by one that accepts any object; `raw` stays as sent.
    """
    tools = []
    for raw in raw_tools:
        try:
            tool = _decode_tool(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            try:
                tool = _decode_loose(raw).tool()
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        if len(tool.name) > MAX_NAME_CHARS:
            continue
        tool.raw = raw
        tool.is_sanitized = False  # the child must not claim this
        tools.append(tool)
    return tools


def fingerprint(spec: ChildSpec) -> str:
    """Return a hash of how a child is started. Its environment cannot be read back from it."""
    from hashlib import sha256

    parts: tuple[object, ...] = (
        *(spec.name, spec.kind, spec.command, spec.args, sorted(spec.env.items()), spec.url, spec.cwd),
        *((sorted(spec.headers.items()),) if spec.headers else ()),
    )
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def _file_name(spec: ChildSpec, client: str) -> str:
    """Return the name of the file for a set of client capabilities that is not the latest."""
    return f"{fingerprint(spec)}-{crc32(client.encode()):08x}"


def cache_folder(environ: Mapping[str, str]) -> str:
    """Return the catalog folder of this user, or an empty string without a home folder."""
    base = environ.get("XDG_CACHE_HOME") or (
        environ.get("HOME", "") and os.path.join(environ["HOME"], ".cache")
    )
    return os.path.join(base, "switchboard-mcp", "catalog") if base else ""


@lru_cache(maxsize=16)
def capability_set(capabilities: bytes) -> str:
    """Return the name of a set of client capabilities: those that a server may choose its tools by."""
    try:
        members = msgspec.json.decode(capabilities)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NO_CAPABILITIES
    if not isinstance(members, dict):
        return NO_CAPABILITIES
    names = [name for name, value in members.items() if value is not None and value is not False]
    names += [
        f"{name}.{part}"
        for name, value in members.items()
        if isinstance(value, dict)
        for part in value
        if part != "listChanged"
    ]
    return " ".join(sorted(names)) or NO_CAPABILITIES


# What the file of learned types adds to the name of an entry.
LEARNED = "-results"


class _CatalogEntry(Struct, eq=False):
    """The latest snapshot of one child, for one configuration of it, and those for other client capabilities."""

    spec: ChildSpec
    snapshot: ServerSnapshot | None
    learned_at: float = 0.0
    others: dict[str, tuple[ServerSnapshot | None, float]] = {}
    has_asked: bool = False  # in this run

    def take(self, snapshot: ServerSnapshot, now: float) -> None:
        """Make a snapshot the latest; one for other client capabilities stays."""
        if self.snapshot is not None and self.snapshot.client != snapshot.client:
            self.others = {**self.others, self.snapshot.client: (self.snapshot, self.learned_at)}
        snapshot.asks_on_its_own |= self.asks_on_its_own
        self.snapshot, self.learned_at = snapshot, now

    @property
    def asks_on_its_own(self) -> bool:
        """True if the child is known for requests that belong to no single call."""
        return self.has_asked or (self.snapshot is not None and self.snapshot.asks_on_its_own)


class Catalog:
    """Reads entries on demand, keeps them in memory, and writes new ones."""

    def __init__(self, folder: str, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._cleaned_up = False
        # By name. After a reload the old configuration of a child stays here until that child has stopped.
        self._entries: dict[str, list[_CatalogEntry]] = {}

    def get(self, spec: ChildSpec, client: str = "") -> ServerSnapshot | None:
        """Return the snapshot of a child from this run or an earlier one, or None.

        That for a set of client capabilities if there is one, else the latest.
        """
        return (self._for_client(spec, client)[0] if client else None) or self._entry(spec).snapshot

    def is_fresh(self, spec: ChildSpec, within_s: float, client: str = "") -> bool:
        """Return True if the snapshot for these capabilities is recent, and the child's files have not changed."""
        snapshot, learned_at = self._for_client(spec, client)
        age_s = self._clock() - learned_at
        return snapshot is not None and 0 <= age_s < within_s and not changed_since(spec, learned_at)

    def _for_client(self, spec: ChildSpec, client: str) -> tuple[ServerSnapshot | None, float]:
        """Return the snapshot for a set of client capabilities and its time, or (None, 0.0)."""
        entry = self._entry(spec)
        if entry.snapshot is not None and entry.snapshot.client == client:
            return entry.snapshot, entry.learned_at
        if client not in entry.others:
            read = self._read(_file_name(spec, client)) if self._is_kept(spec) else (None, 0.0)
            entry.others = {**entry.others, client: read}
        return entry.others[client]

    def _entry(self, spec: ChildSpec) -> _CatalogEntry:
        entry = self._find(spec)
        if entry is None:
            read = self._read(fingerprint(spec)) if self._is_kept(spec) else (None, 0.0)
            entry = self._add(spec, *read)
        return entry

    def _is_kept(self, spec: ChildSpec) -> bool:
        """Return True if a child has files. Builtin ones change only with this program."""
        return bool(self._folder) and spec.kind != "builtin"

    def store(self, spec: ChildSpec, snapshot: ServerSnapshot) -> None:
        """Store the snapshot of a child."""
        entry = self._entry(spec)
        before, learned_at = entry.snapshot, entry.learned_at
        entry.take(snapshot, self._clock())
        if self._is_kept(spec):
            if before is not None and before.client != snapshot.client:
                self._write(_file_name(spec, before.client), msgspec.json.encode(before), learned_at)
            self._write(fingerprint(spec), msgspec.json.encode(snapshot))

    def remember_slow_start(self, spec: ChildSpec, longest_ms: int) -> None:
        """Remember that a start took at least this long. The snapshot stays as old as it is."""
        entry = self._entry(spec)
        snapshot = entry.snapshot
        if snapshot is None or snapshot.longest_start_ms >= longest_ms:
            return
        snapshot.longest_start_ms = longest_ms
        if self._is_kept(spec):
            self._write(fingerprint(spec), msgspec.json.encode(snapshot), entry.learned_at)

    def remember_asking(self, spec: ChildSpec) -> None:
        """Remember that a child sends requests that belong to no single call. The snapshot stays as old as it is."""
        entry = self._entry(spec)
        entry.has_asked = True
        if entry.snapshot is not None and not entry.snapshot.asks_on_its_own:
            entry.snapshot.asks_on_its_own = True
            if self._is_kept(spec):
                self._write(fingerprint(spec), msgspec.json.encode(entry.snapshot), entry.learned_at)

    def asks_on_its_own(self, spec: ChildSpec) -> bool:
        """Return True if a child is known for requests that belong to no single call."""
        return self._entry(spec).asks_on_its_own

    def key_of(self, spec: ChildSpec) -> str:
        """Return the key of a child's entry: the same as long as it is started in the same way."""
        return fingerprint(spec)

    def learned(self, spec: ChildSpec) -> bytes:
        """Return the file of what is learned from the results of a child, or an empty text."""
        if not self._is_kept(spec):
            return b""
        try:
            with open(os.path.join(self._folder, f"{fingerprint(spec)}{LEARNED}"), "rb") as file:
                return file.read()
        except OSError:
            return b""

    def store_learned(self, spec: ChildSpec, data: bytes) -> None:
        """Store what is learned from the results of a child."""
        if self._is_kept(spec):
            self._write(f"{fingerprint(spec)}{LEARNED}", data)

    def discard(self, spec: ChildSpec) -> None:
        """Drop a removed child from memory. Its file stays."""
        entry = self._find(spec)
        if entry is not None:
            self._entries[spec.name].remove(entry)

    def _find(self, spec: ChildSpec) -> _CatalogEntry | None:
        for entry in self._entries.get(spec.name, ()):
            if entry.spec is spec or entry.spec == spec:
                return entry
        return None

    def _add(self, spec: ChildSpec, snapshot: ServerSnapshot | None, learned_at: float) -> _CatalogEntry:
        entry = _CatalogEntry(spec, snapshot, learned_at)
        self._entries.setdefault(spec.name, []).append(entry)
        return entry

    def _read(self, name: str) -> tuple[ServerSnapshot | None, float]:
        """Return the snapshot of a file and its time, or (None, 0.0)."""
        try:
            fd = os.open(os.path.join(self._folder, name), os.O_RDONLY)
        except OSError:
            return None, 0.0
        try:
            with open(fd, "rb") as file:
                snapshot = _decode(file.read())
                learned_at = os.fstat(fd).st_mtime
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None, 0.0
        return (snapshot, learned_at) if snapshot.format == FORMAT else (None, 0.0)

    def _write(self, name: str, data: bytes, learned_at: float | None = None) -> None:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            write_atomically(os.path.join(self._folder, name), data, sync=False)
            if learned_at is not None:
                os.utime(os.path.join(self._folder, name), (learned_at, learned_at))
        except OSError:
            return
        if not self._cleaned_up:
            self._cleaned_up = True
            remove_stale_files(self._folder, self._clock())


def changed_since(spec: ChildSpec, moment: float) -> bool:
    """Return True if a file named in the child's command, its program or a script, changed after `moment`."""
    if spec.kind != "stdio":
        return False
    named = [spec.command] if os.path.dirname(spec.command) else []
    named += [word for word in spec.args[:MAX_CHECKED_ARGS] if "." in word or "/" in word]
    for word in named:
        try:
            if os.stat(os.path.join(spec.cwd, word)).st_mtime > moment:
                return True
        except (OSError, ValueError):  # not a file
            continue
    return False


def remove_stale_files(folder: str, now: float) -> int:
    """Remove unused and left-over files. Return how many."""
    try:
        files = [(entry.stat().st_mtime, entry.name) for entry in os.scandir(folder) if entry.is_file()]
    except OSError:
        return 0
    kept = sorted((item for item in files if "." not in item[1]), reverse=True)
    old = [name for place, (at, name) in enumerate(kept) if place >= MAX_ENTRIES or now - at > MAX_AGE_S]
    left = [name for at, name in files if "." in name and now - at > TEMP_FILE_MAX_AGE_S]
    for name in (*old, *left):
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:  # removed by another process meanwhile
            continue
    return len(old) + len(left)
