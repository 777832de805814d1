"""Reads and writes `switchboard.lock.json`: what each child offered when it was locked.

The file is made for git: sorted, indented, without times or machine paths, written atomically. Its types are in
`config.files.lock_models`; what follows from a difference is decided in `pinning`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.catalog import ServerIdentity, ServerSnapshot, read_tools
from switchboard_mcp.config.documents import Unreadable, decode_json, join_key
from switchboard_mcp.config.files.lock_models import LockedChild, LockedServer, LockedTool, LockFile
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import SandboxSettings, brief
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused, shell_word
from switchboard_mcp.policy import tool_hash
from switchboard_mcp.policy.drift import ToolChange, compare_text, compare_tools
from switchboard_mcp.protocol import message_meta, skills
from switchboard_mcp.protocol.apps import PAGES
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.suites import sanitize
from switchboard_mcp.system.atomic_write import write_atomically

__all__ = [
    "FILE_NAME",
    "LockFile",
    "LockedChild",
    "LockedServer",
    "LockedTool",
    "compare_children",
    "find_tampering",
    "launch_hash",
    "lock_child",
    "lock_path",
    "merge",
    "metadata_changes",
    "read_lock",
    "render",
    "snapshot_of",
    "write_lock",
]

FILE_NAME = "switchboard.lock.json"
# Fifty servers with a hundred tools each stay below. A larger file is not a lock.
MAX_BYTES = 64 * 1024 * 1024
WORKSPACE = "${workspace}"

PROMPTS, RESOURCES, TEMPLATES = "prompts/list", "resources/list", "resources/templates/list"


class LockedList(Struct, frozen=True):
    """One of the lists beside the tools: its member in the lock, the noun of an entry, its key, and what is locked."""

    member: str
    noun: str
    key: str
    texts: tuple[str, ...]
    capability: str

    def name_of(self, raw: Raw) -> str | None:
        """Return the name or URI of an entry, or None if it cannot be decoded."""
        try:
            return message_meta.decode_text(decode_members(raw).get(self.key))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


LISTS = {
    PROMPTS: LockedList("prompts", "prompt", "name", tool_hash.PROMPT_MEMBERS, "prompts"),
    RESOURCES: LockedList("resources", "resource", "uri", tool_hash.RESOURCE_MEMBERS, "resources"),
    TEMPLATES: LockedList(
        "resource_templates", "resource template", "uriTemplate", tool_hash.RESOURCE_MEMBERS, "resources"
    ),
    skills.LIST: LockedList("skills", "skill", "uri", tool_hash.SKILL_MEMBERS, "extensions"),
    PAGES: LockedList("pages", "page", "uri", tool_hash.PAGE_MEMBERS, "resources"),
}


_decode = msgspec.json.Decoder(LockFile).decode


def lock_path(workspace: str) -> str:
    """Return the path of the lock file."""
    return os.path.join(workspace, FILE_NAME)


def read_lock(path: str) -> LockFile | None:
    """Read the lock; None if there is none. Raises `lock_invalid` with every mistake and its key."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise _invalid(f"{path}: cannot be read ({problem.strerror}).") from None
    if len(data) > MAX_BYTES:
        raise _invalid(f"{path}: is larger than {MAX_BYTES // 1024 // 1024} MiB and not a lock.")
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _invalid(_describe_invalid(path, data, problem)) from None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe in its place must not stop the start."""
    return os.open(path, flags | os.O_NONBLOCK)


def _describe_invalid(path: str, data: bytes, problem: Exception) -> str:
    for mark in (b"<<<<<<< ", b">>>>>>> "):
        if data.startswith(mark) or b"\n" + mark in data:
            return f"{path}: has unresolved merge conflicts. Resolve them, then lock again."
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read = decode_json(data)
        return f"{path}: {read.message if isinstance(read, Unreadable) else problem}"
    return "\n".join(f"{path}: {mistake}" for mistake in _find_mistakes(document)) or f"{path}: {problem}"


def _find_mistakes(document: object) -> Iterator[str]:
    """Yield every mistake with its key. Validates part by part, since the decoder does not report map keys."""
    children = document.get("children") if isinstance(document, dict) else None
    if not isinstance(children, dict):
        yield from _validate_part(document, LockFile, "")
        return
    yield from _validate_part({**document, "children": {}}, LockFile, "")  # type: ignore[dict-item]  # it is an object
    for name, child in children.items():
        key = join_key("children", name)
        tools = child.get("tools") if isinstance(child, dict) else None
        if not isinstance(tools, dict):
            yield from _validate_part(child, LockedChild, key)
            continue
        yield from _validate_part({**child, "tools": {}}, LockedChild, key)
        for tool, members in tools.items():
            yield from _validate_part(members, LockedTool, join_key(join_key(key, "tools"), tool))


def _validate_part(part: object, model: type[Struct], key: str) -> Iterator[str]:
    try:
        msgspec.json.decode(msgspec.json.encode(part), type=model)
    except msgspec.ValidationError as problem:
        what, _, place = str(problem).partition(" - at `$")
        where = (key + place.rstrip("`")).lstrip(".")
        yield f"{where}: {what}." if where else f"{what}."


def write_lock(path: str, lock: LockFile) -> None:
    """Write the file atomically."""
    try:
        write_atomically(path, render(lock), 0o644)
    except OSError as problem:
        message = f"{path}: cannot be written ({problem.strerror})."
        raise refused("lock_invalid", message, hint="Make the folder writable, then lock again.") from None


def render(lock: LockFile) -> bytes:
    """Return the bytes of the file. Invisible characters are escaped, so a reviewer sees them."""
    data = msgspec.json.format(msgspec.json.encode(lock, order="sorted"), indent=2) + b"\n"
    if data.isascii() and b"\x7f" not in data:
        return data
    return sanitize.escape_hidden(data.decode()).encode()


def lock_child(
    spec: ChildSpec,
    workspace: str,
    snapshot: ServerSnapshot,
    sandbox: SandboxSettings | UnsetType = UNSET,
) -> LockedChild:
    """Return the lock entry for a snapshot of a child."""
    lists: dict[str, Any] = {kind.member: _locked_entries(snapshot, method) for method, kind in LISTS.items()}
    return LockedChild(
        launch=launch_hash(spec, workspace),
        sandbox=sandbox,
        server=LockedServer(name=snapshot.server.name, version=snapshot.server.version),
        protocol=snapshot.protocol,
        capabilities=sorted(snapshot.capabilities),
        instructions=tool_hash.kept_lines(snapshot.instructions),
        instructions_hash=tool_hash.text_digest(snapshot.instructions),
        tools={name: locked_tool(name, members) for name, members in normalized_tools(snapshot).items()},
        **lists,
    )


def _locked_entries(snapshot: ServerSnapshot, method: str) -> dict[str, LockedTool] | UnsetType:
    """Return the locked entries of a list; UNSET if the child has a list that was not fetched."""
    kind = LISTS[method]
    if method not in snapshot.lists and (method != PROMPTS or kind.capability in snapshot.capabilities):
        return UNSET
    entries: dict[str, LockedTool] = {}
    for raw in snapshot.lists.get(method, ()):
        name = kind.name_of(raw)
        if name is not None:
            members = tool_hash.normalize(raw, kind.texts)
            if "name" in members:  # the hash has the key of an entry as its name
                members["displayName"] = members.pop("name")
            entries[name] = locked_tool(name, members)
    return entries


def normalized_tools(snapshot: ServerSnapshot) -> dict[str, dict[str, object]]:
    """Return all tools of a snapshot in normal form, by name."""
    return {
        tool.name: tool_hash.normalize(tool.raw)
        for tool in read_tools(snapshot.tools)
        if tool.raw is not UNSET
    }


def locked_tool(name: str, members: Mapping[str, object]) -> LockedTool:
    """Return one tool as it is written to the file."""
    # Sorted here as in the file, so an entry is equal before and after a round trip.
    encoded = msgspec.json.encode({"hash": tool_hash.digest(name, members), **members}, order="sorted")
    return msgspec.json.decode(encoded, type=LockedTool)


def launch_hash(spec: ChildSpec, workspace: str) -> str:
    """Return a hash of how a child is started: the same on every machine, without values of variables or headers."""
    parts = {
        "kind": spec.kind,
        "command": [word.replace(workspace, WORKSPACE) for word in (spec.command, *spec.args)],
        "env": sorted(spec.env),
        "url": _strip_secrets(spec.url),
        "headers": sorted(name.lower() for name in spec.headers),
    }
    return tool_hash.value_digest(parts)


def _strip_secrets(url: str) -> str:
    """Return the URL without user, password and query values."""
    if not url:
        return ""
    scheme, mark, rest = url.partition("://")
    place, _, query = rest.partition("#")[0].partition("?")
    host, slash, path = place.partition("/")
    names = sorted(pair.partition("=")[0] for pair in query.split("&") if pair)
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}?{'&'.join(names)}"


def compare_children(before: LockedChild, after: LockedChild) -> list[ToolChange]:
    """Return the differences between two lock entries in what models see."""
    changes = list(compare_text("instructions", before.instructions, after.instructions))
    if before.sandbox is not UNSET and before.sandbox != after.sandbox:
        now = "off" if after.sandbox is UNSET else brief(after.sandbox)
        changes.append(ToolChange("", "sandbox", "changed", brief(before.sandbox), now))
    changes += _compare_entries(before.tools, after.tools, "tool")
    for method, kind in LISTS.items():
        old, new = entries_of(before, method), entries_of(after, method)
        if old is not UNSET and new is not UNSET:
            if method != PROMPTS:  # resources change often, so only what a person reads of one is compared
                old, new = (
                    {name: entries[name] for name in old.keys() & new.keys()} for entries in (old, new)
                )
            changes += _compare_entries(old, new, kind.noun)
    return changes


def entries_of(child: LockedChild, method: str) -> dict[str, LockedTool] | UnsetType:
    """Return the locked entries of one of the lists beside the tools."""
    entries: dict[str, LockedTool] | UnsetType = getattr(child, LISTS[method].member)
    return entries


def _compare_entries(
    before: Mapping[str, LockedTool], after: Mapping[str, LockedTool], what: str
) -> Iterator[ToolChange]:
    changed = {
        name
        for name in {*before, *after}
        if name not in before or name not in after or before[name].hash != after[name].hash
    }
    return compare_tools(
        {name: before[name].members() for name in changed if name in before},
        {name: after[name].members() for name in changed if name in after},
        what,
    )


def metadata_changes(before: LockedChild, after: LockedChild) -> list[str]:
    """Return the differences in metadata, which are harmless by themselves."""
    changes = []
    if before.launch != after.launch:
        changes.append("it is started differently than when it was locked")
    if before.sandbox is UNSET and after.sandbox is not UNSET:
        changes.append(f"its sandbox, {brief(after.sandbox)}, is not in the lock")
    old, new = before.server, after.server
    if (old.name, old.version) != (new.name, new.version):
        changes.append(f"server {old.name} {old.version} → {new.name} {new.version}".replace("  ", " "))
    if before.protocol != after.protocol:
        changes.append(f"protocol {before.protocol} → {after.protocol}")
    for method in (RESOURCES, TEMPLATES):
        locked, listed = entries_of(before, method) or {}, entries_of(after, method) or {}
        added, removed = listed.keys() - locked.keys(), locked.keys() - listed.keys()
        for count, word in ((len(added), "new"), (len(removed), "removed")):
            if count:
                plural = "" if count == 1 else "s"
                changes.append(f"{count} {word} {LISTS[method].noun}{plural}")
    return changes


def merge(before: LockedChild | None, after: LockedChild) -> LockedChild:
    """Return the new entry, with unchanged parts written as before to keep git diffs small."""
    if before is None:
        return _with_results(after, after.results or {})
    tools = _keep_unchanged(before.tools, after.tools)
    lists = {kind.member: _merged_list(before, after, method) for method, kind in LISTS.items()}
    results = {**(before.results or {}), **(after.results or {})}  # those that were learned elsewhere stay
    same = before.instructions_hash == after.instructions_hash
    instructions = before.instructions if same else after.instructions
    limit = before.start_limit_ms if after.start_limit_ms is UNSET else after.start_limit_ms
    merged = msgspec.structs.replace(
        after, tools=tools, instructions=instructions, start_limit_ms=limit, **lists
    )
    return _with_results(merged, results)


def _with_results(entry: LockedChild, results: Mapping[str, dict[str, Any]]) -> LockedChild:
    """Return an entry with these result types and their checksum; an empty one means any result."""
    kept = {name: schema for name, schema in sorted(results.items()) if schema and name in entry.tools}
    digest = _results_digest(kept) if kept else UNSET
    return msgspec.structs.replace(entry, results=kept or UNSET, results_hash=digest)


def _results_digest(results: Mapping[str, dict[str, Any]]) -> str:
    return tool_hash.text_digest(msgspec.json.encode(results, order="sorted").decode())


def _merged_list(before: LockedChild, after: LockedChild, method: str) -> dict[str, LockedTool] | UnsetType:
    old, new = entries_of(before, method), entries_of(after, method)
    return old if new is UNSET else _keep_unchanged(old or {}, new)


def _keep_unchanged(
    before: Mapping[str, LockedTool], after: Mapping[str, LockedTool]
) -> dict[str, LockedTool]:
    return {
        name: before[name] if name in before and before[name].hash == tool.hash else tool
        for name, tool in after.items()
    }


def find_tampering(path: str, child: str, entry: LockedChild) -> Failure | None:
    """Return the failure for the first part of an entry that does not match its hash, or None."""
    key = f"children.{child}"
    if tool_hash.text_digest(entry.instructions) != entry.instructions_hash:
        return _tampered(path, f"{key}.instructions", child)
    lists = {kind.member: entries_of(entry, method) or {} for method, kind in LISTS.items()}
    for list_name, entries in {"tools": entry.tools, **lists}.items():
        for name, tool in entries.items():
            if tool_hash.digest(name, tool.members()) != tool.hash:
                return _tampered(path, f"{key}.{list_name}.{name}", child)
    digest = _results_digest(entry.results) if entry.results else UNSET
    if digest != entry.results_hash:
        return _tampered(path, f"{key}.results", child)
    return None


def snapshot_of(entry: LockedChild) -> ServerSnapshot:
    """Return the snapshot that a lock entry describes."""
    return ServerSnapshot(
        server=ServerIdentity(entry.server.name, entry.server.version),
        protocol=entry.protocol,
        instructions=entry.instructions,
        capabilities=dict.fromkeys(entry.capabilities, Raw(b"{}")),
        tools=[_raw(name, tool) for name, tool in entry.tools.items()],
        lists={
            method: [_raw(name, item, kind.key) for name, item in entries.items()]
            for method, kind in LISTS.items()
            if (entries := entries_of(entry, method)) is not UNSET
        },
    )


def _raw(name: str, tool: LockedTool, key: str = "name") -> Raw:
    members = tool.members()
    members.pop(tool_hash.UNREADABLE, None)
    if "displayName" in members:
        members["name"] = members.pop("displayName")
    if tool_hash.UI in members:
        members["_meta"] = {tool_hash.UI: members.pop(tool_hash.UI)}
    schema = members.get("inputSchema")
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        # The file sorts them by name; a model should read the required ones first.
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        schema["properties"] = dict(
            sorted(schema["properties"].items(), key=lambda pair: pair[0] not in needed)
        )
    return Raw(msgspec.json.encode({**members, key: name}))  # on one line, unlike the file


def _tampered(path: str, key: str, child: str) -> Failure:
    message = f"{path}: {key}: does not match its hash: it was edited by hand."
    hint = f"Restore the file from git, or review the child and run `switchboard lock --accept {shell_word(child)}`."
    return failure("lock_invalid", message, child=child, hint=hint)


def _invalid(message: str) -> SwitchboardError:
    return refused("lock_invalid", message)
