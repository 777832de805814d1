"""What children offer, remembered between runs.

One small file a child in the user's cache folder, named by a fingerprint of how the child is started: another command,
argument or environment is another entry. A cache only: any file may be missing, stale or unwritable without harm.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.core import sanitise

FORMAT = 2


class Annotations(Struct, rename="camel", gc=False):
    """The hints of a tool that a suite's own hints are made of."""

    read_only_hint: bool | None = None
    destructive_hint: bool | None = None


class Tool(Struct, rename="camel"):
    """One tool of a child. `input_schema` stays as the child sent it."""

    name: str
    description: str | None = None
    input_schema: Raw | UnsetType = UNSET
    annotations: Annotations | UnsetType | None = UNSET
    raw: Raw | UnsetType = UNSET  # all of it, as the child sent it
    is_readable: bool = False

    def readable(self) -> Tool:
        """Itself, its texts fit for a model to read from now on; `raw` stays as it is. Looked through once."""
        if not self.is_readable:
            self.is_readable = True
            if self.raw is UNSET or not sanitise.is_plain(self.raw):
                if self.description:
                    self.description = sanitise.shown(self.description)
                if self.input_schema is not UNSET:
                    self.input_schema = sanitise.schema(self.input_schema)
        return self

    @property
    def only_as_task(self) -> bool:
        """Whether it only runs as a task of the handshake era."""
        if self.raw is UNSET or b'"taskSupport"' not in bytes(self.raw):
            return False
        try:
            return _decode_running(self.raw).execution.task_support == "required"
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False


class _Execution(Struct, rename="camel"):
    task_support: str = ""


class _Running(Struct):
    """How a tool is run."""

    execution: _Execution = msgspec.field(default_factory=_Execution)


class _LooseTool(Struct, rename="camel"):
    """A tool of which a part has the wrong type: it can still be called, so it is still there."""

    name: str
    description: Raw | UnsetType = UNSET
    input_schema: Raw | UnsetType = UNSET

    def tool(self) -> Tool:
        described = msgspec.json.decode(self.description) if self.description is not UNSET else None
        return Tool(self.name, described if isinstance(described, str) else None, self.input_schema)


class Server(Struct):
    """How a child names itself."""

    name: str = ""
    version: str = ""


class Knowledge(Struct, rename="camel", kw_only=True):
    """What one child told about itself."""

    format: int = FORMAT
    server: Server = msgspec.field(default_factory=Server)
    protocol: str = ""
    instructions: str = ""
    capabilities: dict[str, Raw] = {}
    tools: list[Raw] = []
    lists: dict[str, list[Raw]] = {}  # prompts, resources and templates, by the method that lists them
    extras: dict[str, dict[str, Raw]] = {}  # what was said beside the entries of a list, by its method


_decode = msgspec.json.Decoder(Knowledge).decode
_decode_running = msgspec.json.Decoder(_Running).decode
_decode_tool = msgspec.json.Decoder(Tool).decode
_decode_loose = msgspec.json.Decoder(_LooseTool).decode


def read_tools(raw_tools: list[Raw]) -> list[Tool]:
    """The tools of a list; an entry that is none is left out, so that it does not hide the others."""
    tools = []
    for raw in raw_tools:
        try:
            tool = _decode_tool(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            try:
                tool = _decode_loose(raw).tool()
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        tool.raw = raw
        tool.is_readable = False  # whatever the child says
        tools.append(tool)
    return tools


def fingerprint(spec: ChildSpec) -> str:
    """Names how a child is started. One-way: nothing of its environment can be read back."""
    from hashlib import sha256

    parts: tuple[object, ...] = (
        *(spec.name, spec.kind, spec.command, spec.args, sorted(spec.env.items()), spec.url, spec.cwd),
        *((sorted(spec.headers.items()),) if spec.headers else ()),
    )
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def cache_folder(environ: Mapping[str, str]) -> str:
    """Where the catalog lives for this user; empty when there is no home."""
    base = environ.get("XDG_CACHE_HOME") or (
        environ.get("HOME", "") and os.path.join(environ["HOME"], ".cache")
    )
    return os.path.join(base, "switchboard-mcp", "catalog") if base else ""


class _Known(Struct, eq=False):
    """What is known of one child as it is configured."""

    spec: ChildSpec
    knowledge: Knowledge | None


class Catalog:
    """Reads entries when asked, keeps them, writes what is learned."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # By name; where a child was changed while it ran, its earlier self is known for a while beside it.
        self._known: dict[str, list[_Known]] = {}

    def recall(self, spec: ChildSpec) -> Knowledge | None:
        """What is known of a child, from this run or an earlier one."""
        known = self._find(spec)
        if known is None:
            kept = self._folder and spec.kind != "builtin"
            known = self._note(spec, self._read(fingerprint(spec)) if kept else None)
        return known.knowledge

    def remember(self, spec: ChildSpec, knowledge: Knowledge) -> None:
        """Keep what a child told."""
        known = self._find(spec)
        if known is None:
            self._note(spec, knowledge)
        else:
            known.knowledge = knowledge
        if self._folder and spec.kind != "builtin":  # which is as new as this program
            self._write(fingerprint(spec), msgspec.json.encode(knowledge))

    def forget(self, spec: ChildSpec) -> None:
        """A child that is no more; what was written of it stays."""
        known = self._find(spec)
        if known is not None:
            self._known[spec.name].remove(known)

    def _find(self, spec: ChildSpec) -> _Known | None:
        for known in self._known.get(spec.name, ()):
            if known.spec is spec or known.spec == spec:
                return known
        return None

    def _note(self, spec: ChildSpec, knowledge: Knowledge | None) -> _Known:
        known = _Known(spec, knowledge)
        self._known.setdefault(spec.name, []).append(known)
        return known

    def _read(self, name: str) -> Knowledge | None:
        try:
            fd = os.open(os.path.join(self._folder, name), os.O_RDONLY)
        except OSError:
            return None
        try:
            with open(fd, "rb") as file:
                known = _decode(file.read())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        return known if known.format == FORMAT else None

    def _write(self, name: str, data: bytes) -> None:
        path = os.path.join(self._folder, name)
        temporary = f"{path}.{os.getpid()}"
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(fd, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError:
            return
