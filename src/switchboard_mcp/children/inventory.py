"""The inventory of one child: its tools, prompts and resources.

Filled by the handshake, refreshed on `list_changed`, cached between runs, checked against the lock. Tools are there
when the child is ready; prompts and resources follow in the background, since no call waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.json import encode

from switchboard_mcp.children.catalog import ServerSnapshot, Tool, capability_set, read_tools
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.handshake import Listed
from switchboard_mcp.config.models import ChildSpec, Config, recorded_sandbox
from switchboard_mcp.config.sandbox import SandboxSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.policy.resource_uris import matches_template
from switchboard_mcp.protocol import apps, message_meta, skills, versions
from switchboard_mcp.protocol.apps import NO_UI, ToolUi
from switchboard_mcp.protocol.client_requests import offers_tasks
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.skills import Skill
from switchboard_mcp.suites import sanitize
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.children.locking.pinning import LockPin
    from switchboard_mcp.policy.drift import ToolChange

# The lists that a notification is about, and the capability that announces each list.
CHANGES = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list", skills.LIST),
}
TOOLS, PROMPTS = "tools/list", "prompts/list"
RESOURCES, TEMPLATES = "resources/list", "resources/templates/list"
CAPABILITY = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}


# The member that identifies an entry of a list.
KEYS = {
    "prompts/list": "name",
    "resources/list": "uri",
    "resources/templates/list": "uriTemplate",
    skills.LIST: "uri",
    apps.PAGES: "uri",
}
# Pages of one child that are locked. Of 65 published servers none has more than a few.
MAX_PAGES = 100
# Skills of a child with handshakes: each is read when the child starts.
MAX_SKILLS = 50


def is_announced(method: str, capabilities: Mapping[str, Raw]) -> bool:
    """Return True if a child with these capabilities says that it has a list, other than that of its tools."""
    if method == skills.LIST:
        return skills.offers_skills(capabilities)
    return CAPABILITY.get(method) in capabilities


class ListSource(Protocol):
    """Fetches lists: the connection to the child."""

    async def fetch(self, method: str, limit_s: float) -> Listed | Failure | None:
        """Fetch all of one list."""

    async def read_page(self, uri: str, limit_s: float) -> Raw | None:
        """Return the result of reading a page of an app, or None if the child does not answer with one."""


class Inventory:
    """Tools, prompts and resources of one child.

    `call_prefixes` holds the encoded start of a `tools/call`, by subtool.
    """

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext, timeout_s: float) -> None:
        self.tools: dict[str, Tool] = {}
        self.call_prefixes: dict[str, bytes] = {}
        self.is_stateless = False
        self._ui: tuple[object, dict[str, ToolUi]] = (None, {})  # what is in `ui_tools`, and of which tools
        self.task_only_tools: frozenset[str] = frozenset()  # tools that a legacy child runs as tasks only
        self.has_resources = False  # results may link to resources
        self.needs_result_check = (
            False  # results may need translation between protocol families, or have links
        )
        self.on_first_snapshot: Callable[[], None] | None = None  # called when the first snapshot arrives
        self._spec = spec
        self._context = context
        self._timeout_s = timeout_s
        self._snapshot: ServerSnapshot | None = None
        self._client = ""  # the capability set of the snapshot to use; empty for the latest
        self._known: list[Tool] | None = None
        self._instructions: tuple[ServerSnapshot | None, str] = (None, "")
        self._pin: LockPin | None = None
        self.sandbox: SandboxSettings | UnsetType = UNSET  # to lock; known if there are locks
        if context.pins is not None:
            self.sandbox = recorded_sandbox(spec, config)
            self._pin = context.pins.pin_for(spec, self.sandbox)
        self._refreshing: set[str] = set()
        self._stale: set[str] = set()
        self.is_complete = False  # all lists have been fetched in this run
        self._fetched: set[str] = set()  # the lists beside the tools that have been fetched in this run
        self._waiters: list[Callable[[], None]] = []
        self._names: dict[str, tuple[list[Raw], frozenset[str]]] = {}

    @property
    def approved_start_s(self) -> float:
        """The limit of a start that the lock records as an approved exception; 0 without one."""
        return self._pin.start_limit_s if self._pin is not None else 0.0

    @property
    def snapshot(self) -> ServerSnapshot | None:
        """The snapshot of this run or an earlier one, or that of the lock."""
        pin = self._pin
        if self._snapshot is not None or pin is None:
            return self._snapshot or self._context.catalog.get(self._spec, self._client)
        if pin.governed:
            return pin.snapshot
        return self._context.catalog.get(self._spec, self._client) or pin.snapshot

    @property
    def longest_start_ms(self) -> int:
        """The longest start of the child that is remembered, or 0 if none is."""
        snapshot = self._snapshot or self._context.catalog.get(self._spec)
        return snapshot.longest_start_ms if snapshot is not None else 0

    def remember_slow_start(self, longest_ms: int) -> None:
        """Remember that a start took at least this long, so that the next one gets more time."""
        self._context.catalog.remember_slow_start(self._spec, longest_ms)

    @property
    def locked(self) -> bool:
        """True if the lock describes the inventory, so the child need not be started."""
        return self._pin is not None and self._pin.snapshot is not None

    def is_fresh(self, within_s: float, announced: bytes) -> bool:
        """Return True if the cached snapshot for these client capabilities may be listed without a start.

        If so, that snapshot is used from now on.
        """
        client = capability_set(announced)
        if self.governed or not self._context.catalog.is_fresh(self._spec, within_s, client):
            return False
        if client != self._client:
            self._client, self._known = client, None
        return True

    def use_client(self, announced: bytes) -> None:
        """Use what is known for these client capabilities. For a child without a process."""
        client = capability_set(announced)
        self._client, self._known = client, None
        if self._snapshot is not None and self._snapshot.client != client:
            self._snapshot, self.tools = None, {}

    @property
    def governed(self) -> bool:
        """True if hosts see only what was locked."""
        return self._pin is not None and self._pin.governed

    @property
    def instructions(self) -> str:
        """The server's instructions, sanitized for a model."""
        snapshot = self._pin.snapshot if self._pin is not None and self._pin.governed else self.snapshot
        if self._instructions[0] is not snapshot:
            text = snapshot.instructions if snapshot is not None else ""
            self._instructions = (snapshot, sanitize.for_model(text, sanitize.INSTRUCTIONS_CHARS))
        return self._instructions[1] if snapshot is not None else ""

    def blocked_reason(self) -> Failure | None:
        """Return the failure if the whole child must not be used, or None."""
        problem = self._pin.blocked_reason() if self._pin is not None else None
        if problem is not None and self.reload_lock():
            return self._pin.blocked_reason() if self._pin is not None else None
        return problem

    def tool_blocked_reason(self, name: str) -> Failure | None:
        """Return the failure for a tool that is unlocked or differs from its lock, or None."""
        problem = self._pin.tool_blocked_reason(name) if self._pin is not None else None
        if problem is not None and self.reload_lock():
            return self._pin.tool_blocked_reason(name) if self._pin is not None else None
        return problem

    def entry_blocked_reason(self, method: str, name: str) -> Failure | None:
        """Return the failure for a prompt or resource that is unlocked or differs from its lock, or None."""
        problem = self._entry_problem(method, name)
        return self._entry_problem(method, name) if problem is not None and self.reload_lock() else problem

    def _entry_problem(self, method: str, name: str) -> Failure | None:
        pin = self._pin
        if pin is None or not pin.governed or (method in self._fetched and name in self.names(method)):
            return None
        drifted = pin.entry_blocked_reason(method, name)
        if drifted is not None or method != PROMPTS:
            return drifted  # a resource that is in no list may fit a template
        child = self._spec.name
        message = f"Child '{child}' has no locked prompt '{name}'."
        if method not in self._fetched:
            message = (
                f"Child '{child}' has not listed its prompts, so '{name}' cannot be compared with the lock."
            )
        return failure("tool_drifted", message, child=child)

    def removed_tool_hint(self, name: str) -> str:
        """Return a hint for a tool that was locked and has been removed, or an empty string."""
        return self._pin.removed_tool_hint(name) if self._pin is not None else ""

    def reload_lock(self) -> bool:
        """Use the lock file as it is now. Return True if it has changed."""
        pins = self._context.pins
        if pins is None or self._pin is None or not pins.is_outdated(self._pin):
            return False
        outdated, self._pin, self._known = self._pin, pins.pin_for(self._spec, self.sandbox), None
        if self._pin is not None:
            self._pin.reuse_normal_form(outdated)
        if self._snapshot is not None:
            self._index()
        self._notify("notifications/tools/list_changed")
        for notification, methods in CHANGES.items():
            if self._pin is not None and any(
                self._pin.listed(method) for method in methods if method in CAPABILITY
            ):
                self._notify(notification)
        return True

    @property
    def fetched_lists(self) -> dict[str, list[Raw]]:
        """The lists beside the tools that were fetched in this run."""
        lists = self._snapshot.lists if self._snapshot is not None else {}
        return {method: lists[method] for method in self._fetched if method in lists}

    @property
    def live_snapshot(self) -> ServerSnapshot | None:
        """The snapshot of the running child, or None if it has not run in this process."""
        return self._snapshot

    def drift(self) -> list[ToolChange]:
        """Return how the running child differs from its lock, which is read again if it has changed."""
        if self._pin is None or not self._pin.changes:
            return []
        self.reload_lock()
        return list(self._pin.changes)

    def learned_results(self, tools: Iterable[Tool]) -> dict[str, str]:
        """Return the learned result types of tools that declare none, by name; none unless programs are enabled."""
        types = self._context.result_types
        if types is None:
            return {}
        results = {
            tool.name: types.text(self._spec, tool.name) for tool in tools if tool.output_schema is UNSET
        }
        return {name: text for name, text in results.items() if text}

    def known_tools(self) -> list[Tool]:
        """Return the tools of this run or an earlier one, or those of the lock."""
        if self._snapshot is not None:
            return list(self.tools.values())
        if self._known is None:
            snapshot = self.snapshot
            self._known = read_tools(snapshot.tools) if snapshot is not None else []
        return self._known

    def has_list(self, method: str) -> bool:
        """Return True if a list is known from this run or an earlier one."""
        snapshot = self.snapshot
        if snapshot is None:
            return False
        return method in (TOOLS, *snapshot.lists) or not is_announced(method, snapshot.capabilities)

    def when_fetched(self, method: str, callback: Callable[[], None], *, refetch: bool = False) -> None:
        """Call back once a list of the running child is known; with `refetch`, once it was fetched in this run."""
        # A governed list is compared with the lock first.
        if self.is_complete or (self.has_list(method) and not refetch and not self.governed):
            callback()
        else:
            self._waiters.append(partial(self.when_fetched, method, callback, refetch=refetch))

    def names(self, method: str) -> frozenset[str]:
        """Return the names or URIs in one of the lists."""
        listed = self.listed(method)
        kept = self._names.get(method)
        if kept is None or kept[0] is not listed:
            kept = self._names[method] = (listed, frozenset(_names(listed, KEYS[method])))
        return kept[1]

    def ui_tools(self) -> dict[str, ToolUi]:
        """Return the tools that say something about a user interface, by name."""
        tools = self.known_tools()
        source = self.tools if self._snapshot is not None else tools
        if self._ui[0] is not source:
            declared = ((tool.name, tool.ui) for tool in tools)
            self._ui = source, {name: ui for name, ui in declared if ui != NO_UI}
        return self._ui[1]

    @property
    def ui_uris(self) -> frozenset[str]:
        """The pages that tools name; a child need not list them as resources."""
        return frozenset(ui.uri for ui in self.ui_tools().values() if ui.uri)

    @property
    def has_skills(self) -> bool:
        """True if the child has skills, as far as is known."""
        snapshot = self.snapshot
        return snapshot is not None and (
            skills.offers_skills(snapshot.capabilities) or bool(self.listed(skills.LIST))
        )

    @property
    def has_tasks(self) -> bool:
        """True if the child runs calls as tasks, as far as is known."""
        snapshot = self.snapshot
        return snapshot is not None and offers_tasks(
            snapshot.capabilities, stateless=versions.is_stateless(snapshot.protocol)
        )

    def skills(self) -> list[Skill]:
        """Return the skills that can be read; of a governed child, the locked ones."""
        entries = map(skills.read_skill, self.listed(skills.LIST))
        return [skill for skill in entries if skill is not None]

    def _has_skill_file(self, uri: str) -> bool:
        """Return True for a file of a skill, and for a folder above or in one."""
        return self.has_skills and any(
            skill.has_file(uri) or skill.has_folder(uri) for skill in self.skills()
        )

    def offers_resource(self, uri: str) -> bool:
        """Return True if the child lists a resource or a template under this URI, or a template that it fits."""
        templates = self.names(TEMPLATES)
        return (
            uri in self.names(RESOURCES)
            or uri in templates
            or uri in self.ui_uris
            or self._has_skill_file(uri)
            or any(matches_template(template, uri) for template in templates)
        )

    def announces(self, method: str) -> bool:
        """Return True if the running child says that it has such a list."""
        return method == TOOLS or (
            self._snapshot is not None and is_announced(method, self._snapshot.capabilities)
        )

    def tool(self, name: str) -> Tool:
        """Return a known tool by name."""
        return next(tool for tool in self.known_tools() if tool.name == name)

    def listed(self, method: str) -> list[Raw]:
        """Return prompts, resources or templates as sent; of a governed child, the locked ones."""
        if self._pin is not None and (pinned := self._pin.listed(method)) is not None:
            return pinned
        snapshot = self.snapshot
        return snapshot.lists.get(method, []) if snapshot is not None else []

    def list_extras(self, method: str) -> dict[str, Raw]:
        """Return the other members of a list result; none of a governed child, since they are not in the lock."""
        snapshot = self.snapshot if not self.governed else None
        return snapshot.extras.get(method, {}) if snapshot is not None else {}

    async def prepare(self, snapshot: ServerSnapshot) -> None:
        """Normalize a large snapshot for its comparison with the lock, outside the event loop."""
        lists = (snapshot.tools, *snapshot.lists.values())
        size = sum(len(memoryview(raw)) for entries in lists for raw in entries)
        if self._pin is not None and size > work_thread.LOOP_BYTES:
            await work_thread.run(work_thread.OWN, partial(self._pin.normalize, snapshot))

    def update(self, snapshot: ServerSnapshot) -> None:
        """Take over the snapshot of a completed handshake."""
        earlier = self.snapshot
        if earlier is not None and not snapshot.lists:
            snapshot.lists = {**earlier.lists}  # a copy: the lock's own lists must not change
            snapshot.extras = {**earlier.extras, **snapshot.extras}
        self._snapshot = snapshot
        self.is_complete = False
        self._fetched = set()
        self.is_stateless = versions.is_stateless(snapshot.protocol)
        self._index()
        if self._differs(earlier, snapshot):
            self._notify("notifications/tools/list_changed")
        elif earlier is None and self.on_first_snapshot is not None:
            self.on_first_snapshot()

    def _differs(self, earlier: ServerSnapshot | None, now: ServerSnapshot) -> bool:
        """Return True if hosts now see other tools than before this run."""
        pin = self._pin
        if pin is not None and (pin.governed or earlier is pin.snapshot):
            return bool(pin.changes)
        # Ignoring order: some servers list their tools in a different order each time.
        return earlier is not None and sorted(map(bytes, earlier.tools)) != sorted(map(bytes, now.tools))

    async def fetch_remaining(self, source: ListSource) -> None:
        """Fetch prompts and resources, and notify about changes."""
        assert self._snapshot is not None
        capabilities = self._snapshot.capabilities
        try:
            for notification, methods in CHANGES.items():
                announced = [method for method in methods if is_announced(method, capabilities)]
                first = not any(method in self._snapshot.lists for method in announced)
                changed = [await self.fetch(source, method) for method in announced]
                if any(changed):
                    self._notify(notification, first=first)
            await self._build_skills(source)
            await self._fetch_pages(source)
        finally:
            self.is_complete = True
            self._resume_waiters()

    async def fetch(self, source: ListSource, method: str) -> bool:
        """Fetch one list again. Return True if it has changed."""
        snapshot = self._snapshot
        listed = await source.fetch(method, self._timeout_s)
        if snapshot is None or not isinstance(listed, Listed) or snapshot is not self._snapshot:
            return False
        entries = listed.entries
        snapshot.extras[method] = listed.extra
        if method == "tools/list":
            snapshot.tools = entries
            await self.prepare(snapshot)
            if snapshot is not self._snapshot:
                return False
            self._index()
            return True
        before = snapshot.lists.get(method)
        snapshot.lists[method] = entries
        self._fetched.add(method)
        if self._pin is not None:
            await self.prepare(snapshot)
            if snapshot is not self._snapshot:
                return False
            self._index()
        self._resume_waiters()
        self._context.catalog.store(self._spec, snapshot)
        return encode(before or []) != encode(entries)

    async def _build_skills(self, source: ListSource) -> None:
        """Build the list of skills of a child with handshakes that offers their files as resources."""
        snapshot = self._snapshot
        if snapshot is None or skills.offers_skills(snapshot.capabilities):
            return
        listed = sorted(uri for uri in self.names(RESOURCES) if uri.startswith(skills.SCHEME))
        entries = []
        for main in [uri for uri in listed if uri.endswith(skills.MAIN_FILE)][:MAX_SKILLS]:
            folder = main.removesuffix(skills.MAIN_FILE)
            body = await self._read_file(source, main)
            files: list[dict[str, object]] = []
            if folder + skills.MANIFEST in listed:
                manifest = await self._read_file(source, folder + skills.MANIFEST)
                files = skills.read_manifest(folder, manifest or b"")
            others = (uri for uri in listed if uri.startswith(folder + "/") and uri != main)
            for uri in list(others)[: skills.MAX_FILES] if not files else ():
                content = await self._read_file(source, uri)
                files += [skills.describe_file(uri, content)] if content is not None else []
            entry = skills.build_entry(main, body, files) if body is not None else None
            entries += [entry] if entry is not None else []
        if (entries or skills.LIST in snapshot.lists) and snapshot is self._snapshot:
            snapshot.lists[skills.LIST] = entries
            self._fetched.add(skills.LIST)
            self._index()

    async def _read_file(self, source: ListSource, uri: str) -> bytes | None:
        result = await source.read_page(uri, self._timeout_s)
        if result is None:
            return None
        is_large = len(memoryview(result)) > work_thread.LOOP_BYTES
        read = partial(skills.read_content, result)
        return await work_thread.run(work_thread.OWN, read) if is_large else read()

    async def _fetch_pages(self, source: ListSource) -> None:
        """Read the pages of apps, if there is a lock to compare them with, or one to write."""
        snapshot = self._snapshot
        if snapshot is None or (self._pin is None and not self._context.reads_pages):
            return
        listed = (uri for uri in self.names(RESOURCES) if uri.startswith(apps.SCHEME))
        uris = sorted({*self.ui_uris, *listed})[:MAX_PAGES]
        records = []
        for uri in uris:
            result = await source.read_page(uri, self._timeout_s)
            if result is None:
                continue
            make_record = partial(apps.page_record, uri, result)
            is_large = len(memoryview(result)) > work_thread.LOOP_BYTES
            record = await work_thread.run(work_thread.OWN, make_record) if is_large else make_record()
            records += [record] if record is not None else []
        if uris and snapshot is self._snapshot:
            snapshot.lists[apps.PAGES] = records
            self._fetched.add(apps.PAGES)
            self._index()

    def page_blocked_reason(self, uri: str, result: Raw) -> Failure | None:
        """Return the failure for a page that a governed child has sent and that is not the locked one, or None."""
        if not self.governed:
            return None
        problem = self._page_problem(uri, result)
        return self._page_problem(uri, result) if problem is not None and self.reload_lock() else problem

    def _page_problem(self, uri: str, result: Raw) -> Failure | None:
        assert self._pin is not None
        record = apps.page_record(uri, result)
        return self._pin.page_blocked_reason(uri, record)

    def _resume_waiters(self) -> None:
        """Call back the waiters of lists that are known now."""
        waiting, self._waiters = self._waiters, []
        for callback in waiting:
            callback()

    def on_list_changed(self, source: ListSource, notification: str) -> None:
        """Refresh a list. One refresh at a time, then one more if it changed meanwhile."""
        if notification in self._refreshing:
            self._stale.add(notification)
        else:
            self._refreshing.add(notification)
            self._context.start_task(self._refresh(source, notification))

    async def _refresh(self, source: ListSource, notification: str) -> None:
        try:
            for method in CHANGES[notification]:
                if method != skills.LIST or self.announces(method):
                    await self.fetch(source, method)
            if notification != "notifications/prompts/list_changed":
                await self._build_skills(source)
                await self._fetch_pages(source)
        finally:
            self._refreshing.discard(notification)
        self._notify(notification)
        if notification in self._stale:
            self._stale.discard(notification)
            self.on_list_changed(source, notification)

    def _notify(self, notification: str, *, first: bool = False) -> None:
        if self._context.events is not None:
            self._context.events.on_list_changed(self._spec.name, notification, first=first)

    def _index(self) -> None:
        snapshot, pin = self._snapshot, self._pin
        assert snapshot is not None
        reported = tools = read_tools(snapshot.tools)
        if pin is not None:
            if pin.compare(snapshot, self._fetched) and self._context.records is not None:
                outcome = "blocked" if pin.governed else "logged"
                for tool in sorted({change.tool for change in pin.changes}):
                    record = CallRecord("drift", child=self._spec.name, subtool=tool, outcome=outcome)
                    self._context.records.record(record)
            if pin.governed:
                pinned = read_tools(pin.snapshot.tools) if pin.snapshot is not None else []
                tools = [tool for tool in pinned if pin.matches_lock(tool.name)]
        self.tools = {tool.name: tool for tool in tools}
        self.task_only_tools = frozenset(
            tool.name for tool in reported if not self.is_stateless and tool.task_support == "required"
        )
        self.has_resources = "resources" in snapshot.capabilities
        self.needs_result_check = self.is_stateless or bool(self.task_only_tools) or self.has_resources
        declared = self.ui_tools()
        self.needs_result_check |= bool(declared)
        # A tool for pages alone is not a subtool: a model must not call it.
        self.call_prefixes = {
            name: _call_prefix(name, as_task=name in self.task_only_tools)
            for name in self.tools
            if declared.get(name, NO_UI).for_model
        }
        self._context.catalog.store(self._spec, snapshot)


def _call_prefix(name: str, *, as_task: bool) -> bytes:
    """Return the encoded start of every `tools/call` to this subtool, up to its arguments."""
    task = b'"task":{},' if as_task else b""
    return b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":%b,%b"arguments":' % (encode(name), task)


def _names(entries: list[Raw], key: str) -> Iterator[str]:
    for entry in entries:
        try:
            name = decode_members(entry).get(key)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        text = message_meta.decode_text(name)
        if text is not None:
            yield text
