"""The tool list, capabilities and instructions that hosts see of all children together.

Direct tools keep their own names; a name that is taken is prefixed with the child's. If exactly one child is direct,
hosts also see its other capabilities. Hosts that show MCP Apps find an app by its tool alone, so for them the tools
with a page are direct too, and the tools that pages call are listed for pages alone. With exposure `auto`, what a known
host does by itself decides what it is shown (`host_exposure`).

The list is sorted by name. One that exceeds the size limit has pages, and since some hosts never ask for the second,
the tools that matter most come first (`_rank_suite`). A cursor names the list that it continues: if the list changes
meanwhile, the host gets the rest of the list it began with, or an error, never a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import DecodeError, Raw, Struct
from msgspec.json import encode

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.config.sections import CHANNEL_CAPABILITY
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.capabilities import (
    find_extension_child,
    is_of_family,
    other_extensions,
    server_capabilities,
)
from switchboard_mcp.gateway.suites.app_pages import page_tool, tools_of_pages, tools_with_page
from switchboard_mcp.gateway.suites.child_suite import TOOLS, ChildSuite, ResolvedName, direct_descriptor
from switchboard_mcp.gateway.suites.host_exposure import NO_CHOICE, HostExposure, candidates, exposure_for
from switchboard_mcp.gateway.suites.suite_tools import (
    MAX_LIST_BYTES,
    SHAPES,
    Shape,
    Suite,
    encode_suites,
    split_pages,
)
from switchboard_mcp.hosts.traits import UNKNOWN, HostTraits
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import skills, versions
from switchboard_mcp.protocol.apps import EXTENSION, for_apps_only
from switchboard_mcp.protocol.client_requests import TASKS
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.skills import offers_directories
from switchboard_mcp.suites.suite_names import unique_tool_name

INSTRUCTIONS = (
    "Each tool here is a suite: one MCP server with its subtools. "
    'Call a suite with {"action":"introspect"} to see its subtools (optional "query", or "subtool" for one in full), '
    'then with {"action":"call","subtool":NAME,"args":{…}} to use one.'
)


# Lists that hosts may still be reading, page by page, after a newer one has replaced them.
KEPT_LISTS = 4
ALWAYS_LOAD = "anthropic/alwaysLoad"
# Of the names of children in the instructions.
NAMED_CHARS = 1_000
# The order of a list with pages. Built-in suites can find the tools of the other pages.
RANK_BUILT_IN, RANK_PINNED, RANK_ALWAYS_LOAD, RANK_USED, RANK_DIRECT, RANK_UNUSED = range(6)


class ToolPages(Struct, frozen=True):
    """The `tools/list` results of one list. `stamp` identifies it in cursors; empty if there is one page."""

    pages: list[bytes]
    stamp: str = ""


class MarkedSuite:
    """A suite tool that hosts which load tools on demand are asked to load always."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """Return the suite tool as `tools/list` shows it."""
        return {**self._suite.descriptor(shape), "_meta": {ALWAYS_LOAD: True}}


class ToolListCache:
    """Builds and caches the tool list of one view."""

    def __init__(
        self,
        suites: Mapping[str, ChildSuite],
        tools: dict[str, Suite],
        behind: Mapping[str, ChildSuite],
        log: Log,
    ) -> None:
        self._suites = suites
        self._tools = tools
        self._behind = behind  # the suite of each suite tool
        self._log = log
        self._encoded: dict[tuple[bool, bool, HostExposure], ToolPages] = {}
        self._kept: dict[tuple[bool, bool, str], ToolPages] = {}
        self._logged: tuple[int, int] = (0, 0)
        self._direct: dict[tuple[bool, HostExposure], dict[str, ResolvedName]] = {}
        self._is_host_aware = any(suite.exposure == "auto" for suite in suites.values())
        self._exposures: dict[HostTraits, HostExposure] = {}
        self._snapshots: list[ServerSnapshot | Failure | None] = []
        self._hidden: set[str] = set()  # children whose extensions are not announced, as logged

    def invalidate(self) -> None:
        """Drop the cache after a child's inventory has changed."""
        self._encoded.clear()
        self._direct.clear()
        self._exposures.clear()
        if any(suite.child.inventory.governed for suite in self._suites.values()):
            self._kept.clear()  # a tool may have been withdrawn

    def exposure_for(self, host: HostTraits) -> HostExposure:
        """Return what a host is shown otherwise than hosts that nothing is known about."""
        self._check_snapshots()
        if not self._is_host_aware or host is UNKNOWN:
            return NO_CHOICE
        if host not in self._exposures:
            self._exposures[host] = exposure_for(candidates(self._suites.values()), host)
        return self._exposures[host]

    def pages(self, *, stateless: bool, apps: bool = False, host: HostTraits = UNKNOWN) -> list[bytes]:
        """Return the `tools/list` results for a host, page by page. `apps` if it shows the pages of tools."""
        return self._current(stateless, apps, self.exposure_for(host)).pages

    def page(
        self, cursor: str, *, stateless: bool, apps: bool = False, host: HostTraits = UNKNOWN
    ) -> bytes | None:
        """Return the page that a cursor names, or None if it is not known. An empty cursor names the first."""
        current = self._current(stateless, apps, self.exposure_for(host))
        if not cursor:
            return current.pages[0]
        number, _, stamp = cursor.partition(".")
        named = current if stamp == current.stamp else self._kept.get((stateless, apps, stamp))
        if named is None or not number.isascii() or not number.isdigit() or len(number) > len("1000000"):
            return None
        return named.pages[int(number)] if 0 < int(number) < len(named.pages) else None

    def _current(self, stateless: bool, apps: bool, exposure: HostExposure) -> ToolPages:
        self._check_snapshots()
        key = stateless, apps, exposure
        if key not in self._encoded:
            listed = self._encoded[key] = self._build(stateless, apps, exposure)
            if listed.stamp:
                self._kept[stateless, apps, listed.stamp] = listed
                while len(self._kept) > KEPT_LISTS:
                    del self._kept[next(iter(self._kept))]
        return self._encoded[key]

    def _build(self, stateless: bool, apps: bool, exposure: HostExposure) -> ToolPages:
        own = self._direct_tools(apps, exposure)
        marked = exposure.always_load
        direct = [
            _always_loaded(tool) if resolved.suite.name in marked else tool
            for name, resolved in own.items()
            for tool in (direct_descriptor(name, resolved, stateless=stateless),)
        ]
        if apps:
            direct = [
                page_tool(tool, resolved, self._suites.values())
                for tool, resolved in zip(direct, own.values(), strict=True)
            ]
            callable_by_pages = self._app_tools(exposure)
            own = {**own, **{name: owners[0] for name, owners in callable_by_pages.items()}}
            direct += [
                for_apps_only(direct_descriptor(name, owners[0], stateless=stateless), name)
                for name, owners in callable_by_pages.items()
            ]
        shown = self._suite_tools(exposure)
        listed = [MarkedSuite(suite) if self._behind[suite.name].name in marked else suite for suite in shown]
        suites = encode_suites(listed, direct)
        extra = self.result_members("tools/list")
        whole = encode({**extra, "tools": [*suites, *direct]})
        if len(whole) <= MAX_LIST_BYTES:
            return ToolPages([whole])
        ranks = [_rank_suite(self._behind[suite.name]) for suite in shown]
        for index, rank in enumerate(ranks):
            if rank == RANK_BUILT_IN:  # these describe how to find the others
                suites[index] = Raw(encode(listed[index].descriptor(SHAPES[0])))
        ranks += [
            RANK_DIRECT if resolved.suite.direct or resolved.suite.name in exposure.direct else RANK_PINNED
            for resolved in own.values()
        ]
        return self._paginate([*suites, *direct], ranks, extra, stateless=stateless)

    def _paginate(
        self, tools: list[Raw], ranks: list[int], extra: dict[str, Raw], *, stateless: bool
    ) -> ToolPages:
        """Return the list in pages, the lowest ranks first. Cursors have a stamp of the list that they belong to."""
        from hashlib import blake2b

        ordered = [tools[index] for index in sorted(range(len(tools)), key=ranks.__getitem__)]
        pages = split_pages(ordered, extra)
        stamp = blake2b(encode([stateless, ordered]), digest_size=8).hexdigest()
        self._warn_paged(len(pages[0]), len(tools), len(pages))
        return ToolPages(
            [
                encode({**extra, "tools": page, **({"nextCursor": f"{number}.{stamp}"} if more else {})})
                for number, page in enumerate(pages, 1)
                for more in (number < len(pages),)
            ],
            stamp,
        )

    def _warn_paged(self, first: int, tools: int, pages: int) -> None:
        if (first, tools) != self._logged:
            self._logged = (first, tools)
            self._log.warning("tools.list_paged", tools=tools, first_page=first, pages=pages)

    def direct(self, *, apps: bool = False, host: HostTraits = UNKNOWN) -> dict[str, ResolvedName]:
        """Return the direct tools by the name that a host uses; with `apps`, those with a page too."""
        return self._direct_tools(apps, self.exposure_for(host))

    def find_direct(self, name: str) -> ResolvedName | None:
        """Return a direct tool of any host that has listed tools, by the name it uses."""
        lists = [self.direct(), *self._direct.values()]
        return next((tools[name] for tools in lists if name in tools), None)

    def _direct_tools(self, apps: bool, exposure: HostExposure) -> dict[str, ResolvedName]:
        self._check_snapshots()
        key = apps, exposure
        if key not in self._direct:
            tools: dict[str, ResolvedName] = {}
            used_names = set(self._tools)
            # A page must never reach the tool of another child by a name that its own child has too.
            reserved = tools_of_pages(self._suites.values()) if apps else {}
            for suite in self._suites.values():
                names = _own_names(suite, exposure)
                if apps:
                    names += [name for name in tools_with_page(suite) if name not in names]
                for own in names:
                    owners = reserved.get(own, ())
                    is_reserved = any(match.suite is not suite for match in owners)
                    name = unique_tool_name(
                        {*used_names, own} if is_reserved else used_names, own, suite.child.name
                    )
                    used_names.add(name)
                    tools[name] = ResolvedName(suite, own)
            self._direct[key] = tools
        return self._direct[key]

    def app_tools(self, *, host: HostTraits = UNKNOWN) -> dict[str, list[ResolvedName]]:
        """Return the tools that pages call, by the names that their authors gave them, as far as these are free."""
        return self._app_tools(self.exposure_for(host))

    def _app_tools(self, exposure: HostExposure) -> dict[str, list[ResolvedName]]:
        listed = self._direct_tools(True, exposure)
        return {
            name: owners
            for name, owners in tools_of_pages(self._suites.values()).items()
            if name not in self._tools and name not in listed
        }

    def _suite_tools(self, exposure: HostExposure = NO_CHOICE) -> list[Suite]:
        """Return the suite tools that are listed."""
        return [suite for name, suite in self._tools.items() if self._lists_suite(name, exposure)]

    def _lists_suite(self, name: str, exposure: HostExposure) -> bool:
        suite = self._behind[name]
        if (
            suite.exposure == "direct" and suite.has_failed
        ):  # it has nothing else to show, and its suite says why
            return name in suite.listed_names()
        if suite.name in exposure.direct:
            return False
        return name in suite.listed_names() if suite.name in exposure.suites else suite.lists(name)

    def blocked_reason(self, name: str) -> Failure | None:
        """Return the failure for a direct tool that its lock keeps off the list, or None."""
        showing = (suite for suite in self._suites.values() if suite.lists_own_entries("tools/list"))
        problems = (
            suite.child.inventory.tool_blocked_reason(name) for suite in showing if suite.access.permits(name)
        )
        return next((problem for problem in problems if problem is not None), None)

    def _check_snapshots(self) -> None:
        """Drop the cache if a child has a new snapshot."""
        snapshots = [suite.child.snapshot or suite.child.last_failure for suite in self._suites.values()]
        if (
            any(snapshot is not other for snapshot, other in zip(snapshots, self._snapshots, strict=False))
            or not self._snapshots
        ):
            self.invalidate()
            self._snapshots = snapshots
            self._show_failed()

    def _show_failed(self) -> None:
        """Let hosts call the suites of children that are exposed directly as long as these cannot be started."""
        for suite in self._suites.values():
            if suite.exposure != "direct":
                continue
            if suite.has_failed:
                self._tools[suite.name] = suite
            else:
                self._tools.pop(suite.name, None)

    def only_direct(self) -> ChildSuite | None:
        """Return the direct child if there is exactly one."""
        direct = [suite for suite in self._suites.values() if suite.direct]
        return direct[0] if len(direct) == 1 else None

    def sole_child(self) -> ChildSuite | None:
        """Return the direct child if there is nothing else in the view."""
        return self.only_direct() if len(self._suites) == 1 and not self._tools else None

    def result_members(self, method: str) -> dict[str, Raw]:
        """Return the members of a list result beside its entries, if the list is that of one child."""
        suite = self.sole_child()
        return suite.child.inventory.list_extras(method) if suite is not None else {}

    def instructions(self, host: HostTraits = UNKNOWN) -> str:
        """Return the instructions for a host. If its model sees no tool names, they list the children."""
        parts = [INSTRUCTIONS] if self._suite_tools(self.exposure_for(host)) else []
        names = [suite.source for suite in self._suites.values() if not suite.built_in]
        if host.hides_names and names:
            parts.append(_name_servers(names))
        for suite in self._suites.values():
            if suite.direct and suite.child.snapshot is not None:
                inventory = suite.child.inventory
                parts.append(
                    inventory.instructions if inventory.governed else suite.child.snapshot.instructions
                )
        return "\n\n".join(filter(None, parts))

    def capabilities(self, *, stateless: bool) -> dict[str, object]:
        """Return the capabilities for a host of the given protocol version family."""
        suite = self.only_direct()
        capabilities = server_capabilities(
            suite.child.snapshot if suite is not None else None, stateless=stateless
        )
        extending = self.extension_child(stateless=stateless)
        others = other_extensions(extending.child.snapshot) if extending is not None else {}
        if extending is not None and not is_of_family(extending, stateless=stateless):
            others.pop("extensions", None)
        capabilities |= others
        if extensions := self._extensions(stateless=stateless):
            capabilities["extensions"] = {**extensions, **others.get("extensions", {})}
        if not stateless and any(suite.child.spec.channel for suite in self._suites.values()):
            capabilities["experimental"] = {**others.get("experimental", {}), CHANNEL_CAPABILITY: {}}
        return capabilities

    def extension_child(self, *, stateless: bool) -> ChildSuite | None:
        """Return the child that receives methods that MCP does not define, or None."""
        chosen = find_extension_child(self._suites.values(), stateless=stateless)
        extending = [suite for suite in self._suites.values() if other_extensions(suite.child.snapshot)]
        hidden = {suite.source for suite in extending if suite is not chosen}
        if hidden - self._hidden:
            self._hidden |= hidden
            self._log.info("extensions.not_announced", children=", ".join(sorted(hidden)))
        return chosen

    @property
    def has_extensions(self) -> bool:
        """True if a child of this view declares an extension that Switchboard does not know."""
        return any(other_extensions(suite.child.snapshot) for suite in self._suites.values())

    def _extensions(self, *, stateless: bool) -> dict[str, object]:
        """Return the extensions that work behind the suites of this view, for a host of this family."""
        extensions: dict[str, object] = {}
        if stateless and any(map(_offers_tasks, self._suites.values())):
            extensions[TASKS] = {}
        if tools_of_pages(self._suites.values()):
            extensions[EXTENSION] = {}
        offers = [suite.child.snapshot for suite in self._suites.values() if suite.child.inventory.has_skills]
        if offers:
            lists_folders = any(
                offer is not None and offers_directories(offer.capabilities) for offer in offers
            )
            extensions[skills.EXTENSION] = {"directoryRead": True} if lists_folders else {}
        return extensions


def _own_names(suite: ChildSuite, exposure: HostExposure) -> list[str]:
    """Return the names of the child's tools that are listed under their own names."""
    if suite.name in exposure.direct:
        tools = suite.own_tools()
    elif suite.name in exposure.suites:
        tools = suite.pinned_tools()
    else:
        tools = suite.direct_tools() if suite.lists_own_entries(TOOLS) else []
    return [tool.name for tool in tools]


def _always_loaded(tool: Raw) -> Raw:
    """Return a tool with the mark of those that are loaded without a search; as it is if it cannot be decoded."""
    try:
        members = decode_members(tool)
        meta = decode_members(members["_meta"]) if "_meta" in members else {}
    except (DecodeError, UnicodeDecodeError):
        return tool
    return Raw(encode({**members, "_meta": {**meta, ALWAYS_LOAD: True}}))


def _name_servers(names: Sequence[str]) -> str:
    """Return a sentence with as many names as fit."""
    shown: list[str] = []
    for name in names:
        if sum(map(len, shown)) + 2 * len(shown) + len(name) > NAMED_CHARS:
            break
        shown.append(name)
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return f"MCP servers with tools here: {', '.join(shown)}{more}."


def _offers_tasks(suite: ChildSuite) -> bool:
    """Return True if a stateless child may answer a stateless host with a task."""
    snapshot = suite.child.snapshot
    return (
        snapshot is not None and suite.child.inventory.has_tasks and versions.is_stateless(snapshot.protocol)
    )


def _rank_suite(suite: ChildSuite) -> int:
    """Return the place of a suite in a list with pages: built-in, always loaded, run here before, or none of these."""
    if suite.built_in:
        return RANK_BUILT_IN
    if suite.always_load:
        return RANK_ALWAYS_LOAD
    return RANK_USED if suite.child.snapshot is not None else RANK_UNUSED
