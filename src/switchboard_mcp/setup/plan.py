"""Decides what `init` does: which entry becomes which child, and the new content of every file.

Reads the secrets file and the workspace's config; writes nothing. Chooses the names, merges the same server from
several hosts, and picks the file of each host that gets the entry for Switchboard.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs, to_builtins

from switchboard_mcp.config.discover import WORKSPACE_FOLDER
from switchboard_mcp.config.files.schema_files import read_schema, schema_file
from switchboard_mcp.config.files.secrets_file import SECRETS_FILE, append_secrets, parse_secrets
from switchboard_mcp.config.keyring_store import new_reference
from switchboard_mcp.config.sandbox import Preset
from switchboard_mcp.errors import refused
from switchboard_mcp.setup.child_entries import (
    FOLDER,
    PERSONAL,
    ChildrenFolder,
    child_path,
    find_problem,
    render_child,
    replace_literal_secrets,
    safe_name,
)
from switchboard_mcp.setup.dialects import ENTRY_NAME, HostServer, portable_command
from switchboard_mcp.setup.discovery import DiscoveredServer, Discovery, ServerMap
from switchboard_mcp.setup.edit import formats, jsonc_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.host_profiles import (
    HostProfile,
    MovedServer,
    host_profiles,
    limits,
    profile_name,
    project_profile,
)
from switchboard_mcp.setup.hosts import ANY_FILE
from switchboard_mcp.setup.journal import FileChange, ServerMapEdit, read
from switchboard_mcp.setup.known_servers import propose_sandbox
from switchboard_mcp.setup.variable_syntax import referenced_variables
from switchboard_mcp.system.atomic_write import GITIGNORE

# The entry in a file of a project that stands beside the user's own.
PROJECT_ENTRY = f"{ENTRY_NAME}-project"
# Switchboard itself reads these. Codex passes only variables that its entry names.
OWN_VARIABLES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


CONFIG_SCHEMA = schema_file("config")

# Literal secrets stay in the entries, or become variables whose values are in the secrets file or the system keyring.
SecretStore = Literal["keep", "env", "keyring"]


SandboxChoice = Preset | Literal["known", ""]


class Outcome(Struct, kw_only=True):
    """The decision for one entry: it becomes `child`, or it is skipped for a reason."""

    entry: DiscoveredServer
    child: str = ""
    skip_reason: str = ""
    differs: str = ""  # In what it differs from the child that has its name already.
    merged_with: str = ""  # The entry that the child was made from, if it is not this one.

    @property
    def moves(self) -> bool:
        """True if the entry is moved."""
        return bool(self.child)


class NewChild(Struct, kw_only=True):
    """A child to create."""

    name: str
    server: HostServer
    forwarded: list[str] = []
    hosts: list[str] = []


class ExistingSetup(Struct, frozen=True, kw_only=True):
    """The children that the workspace already has, all names in use, and the hosts that children were moved from."""

    children: dict[str, HostServer]
    names: set[str]
    hosts_of: dict[str, list[str]] = {}
    # Children of the user workspace that a project includes, with the hosts that they were moved from.
    included: dict[str, list[str]] = {}

    def taken(self, host: str) -> set[str]:
        """Return the names that a server of a host cannot get: a project hides only what the same host had."""
        return self.names | {name for name, hosts in self.included.items() if host not in hosts}


class Plan(Struct, kw_only=True):
    """All changes that `init` would make."""

    outcomes: list[Outcome]
    children: list[NewChild]
    changes: list[FileChange]
    problems: list[str]
    variables: list[str]
    secrets: dict[str, str]
    # Values for the system keyring, each with its reference in the secrets file.
    keyring: dict[str, tuple[str, str]] = {}
    profiles: list[HostProfile] = []

    @property
    def moving(self) -> list[Outcome]:
        """The entries that are moved."""
        return [outcome for outcome in self.outcomes if outcome.moves]


def decide(
    discovery: Discovery, present: ExistingSetup, workspace: str, *, share: bool = False
) -> tuple[list[Outcome], list[NewChild]]:
    """Decide which entry becomes which child.

    Without `share`, the limits on tools are part of each host's profile. With it, they are part of the child, so
    entries with different limits become two.
    """
    outcomes: list[Outcome] = []
    new: dict[str, NewChild] = {}
    origin: dict[str, str] = {}
    for discovered in discovery.servers:
        parsed, server = discovered.parsed, discovered.parsed.server
        if server is None:
            outcomes.append(Outcome(entry=discovered, skip_reason=parsed.skip_reason))
            continue
        if problem := find_problem(safe_name(discovered.name), server, workspace):
            outcomes.append(Outcome(entry=discovered, skip_reason=problem))
            continue
        servers = {**present.children, **{name: child.server for name, child in new.items()}}
        same = _find_same(server, servers, share)
        if same is None:
            name = _free_name(discovered, present.taken(discovered.source.host.name) | new.keys())
            own = server if share else structs.replace(server, allow=[], deny=[])
            new[name] = NewChild(name=name, server=own, forwarded=list(parsed.forwarded))
            origin[name] = f"{discovered.source.host.name}: {discovered.name}"
            namesake = servers.get(safe_name(discovered.name)) if name != safe_name(discovered.name) else None
            differs = _differences(server, namesake, share) if namesake is not None else ""
            outcomes.append(Outcome(entry=discovered, child=name, differs=differs))
            continue
        if same in new:
            new[same] = _merge(new[same], server, parsed.forwarded)
        outcomes.append(
            Outcome(entry=discovered, child=same, merged_with=origin.get(same, "an existing child"))
        )
    return outcomes, list(new.values())


def _find_same(server: HostServer, children: Mapping[str, HostServer], share: bool) -> str | None:
    def key(server: HostServer) -> object:
        return server.merge_key if share else server.launch_key

    return next((name for name, other in children.items() if key(other) == key(server)), None)


def _differences(server: HostServer, other: HostServer, share: bool) -> str:
    """Return the parts in which a server differs from another with the same name, in words."""
    parts = [
        ("type", server.kind, other.kind),
        ("command", server.command, other.command),
        ("arguments", server.args, other.args),
        ("variables", server.env, other.env),
        ("URL", server.url, other.url),
        ("headers", server.headers, other.headers),
        ("folder", server.cwd, other.cwd),
        ("tools", (server.allow, server.deny) if share else (), (other.allow, other.deny) if share else ()),
    ]
    return " and ".join(name for name, own, others in parts if own != others)


def _merge(child: NewChild, server: HostServer, forwarded: Sequence[str]) -> NewChild:
    """Merge the same server of two hosts. It is disabled only if it is disabled in both."""
    first = child.server
    times = [time for time in (first.timeout_ms, server.timeout_ms) if time is not None]
    merged = structs.replace(
        first,
        disabled=first.disabled and server.disabled,
        timeout_ms=max(times, default=None),
        description=first.description or server.description,
        oauth=first.oauth if first.oauth is not None else server.oauth,
    )
    return NewChild(name=child.name, server=merged, forwarded=[*child.forwarded, *forwarded])


def _free_name(server: DiscoveredServer, names: set[str]) -> str:
    name = safe_name(server.name)
    if name not in names:
        return name
    own = f"{name}-{server.source.host.name}"
    return next(
        candidate
        for candidate in (own, *(f"{own}-{number}" for number in range(2, 1000)))
        if candidate not in names
    )


class SetupOptions(Struct, frozen=True, kw_only=True):
    """Options of `init` and the features to enable."""

    workspace: str
    # Path of the workspace's config file, which need not exist.
    config: str
    # Command line for the hosts. If empty, each gets one that works on every machine.
    command: list[str]
    environ: Mapping[str, str]
    children: ChildrenFolder = PERSONAL
    secrets: SecretStore = "keep"
    enable: tuple[str, ...] = ()
    # Preset of the sandboxes of new children; `known` for those alone whose needs are known.
    sandbox: SandboxChoice = ""
    # Variables that every entry for Switchboard sets.
    entry_env: Mapping[str, str] = {}
    # Hosts that get an entry even if nothing is moved from them.
    connect: tuple[str, ...] = ()
    # Hosts that have an entry for this workspace already.
    entered: tuple[str, ...] = ()
    # Hosts that have, or get, an entry for the user workspace.
    entered_by_user: tuple[str, ...] = ()
    # All hosts see all servers, instead of those they had.
    share: bool = False
    hosts_of: Mapping[str, Sequence[str]] = {}
    # Hidden children of each existing profile.
    hidden: Mapping[str, Sequence[str]] = {}
    # The user workspace, if it is not this workspace.
    user_workspace: str = ""
    # True if this is the user workspace: only files of the user get an entry.
    is_user: bool = False
    # True if this workspace includes the user workspace.
    includes_user: bool = False
    # True if changed profiles need an approval.
    is_governed: bool = False
    # Other folders whose entries lead to this workspace too.
    reached_from: tuple[str, ...] = ()

    @property
    def is_team(self) -> bool:
        """True if the entries are for everyone who works on the project."""
        return not self.command


def make_plan(
    discovery: Discovery,
    outcomes: Sequence[Outcome],
    children: Sequence[NewChild],
    options: SetupOptions,
    earlier: Sequence[FileChange] = (),
) -> Plan:
    """Compute the new content of every file. `earlier` are changes that are made before these."""
    used = {outcome.child for outcome in outcomes}
    kept = [child for child in children if child.name in used]
    values: dict[str, str] = {}
    if options.secrets != "keep":
        values = move_secrets(kept, parse_secrets(read(os.path.join(options.workspace, SECRETS_FILE)) or b""))
    plan = Plan(
        outcomes=list(outcomes),
        children=kept,
        changes=[],
        problems=list(discovery.problems),
        variables=_needed_variables(kept),
        secrets=values,
    )
    if options.secrets == "keyring":
        plan.keyring = {name: (new_reference(), value) for name, value in values.items()}
    if not options.share:
        moved = _moved(outcomes, options)
        connected = {
            _profile(source, options)
            for source in _files_for_entry(discovery, outcomes, options)
            if source.host.name in options.connect
        }
        profiles = host_profiles(moved, options.hosts_of, options.hidden, connected - {""})
        plan.profiles = [
            # Profiles are approved, so one that says nothing would only take the workspace out of service.
            profile
            for profile in profiles
            if not options.is_governed or profile.settings() or profile.name in options.hidden
        ]
        for child in kept:
            names = (server.profile for server in moved if server.child == child.name)
            child.hosts = sorted({name for name in names if name})
    hosts = _host_changes(
        discovery, outcomes, plan, options, {change.path: change.after for change in earlier}
    )
    if not kept and not hosts and not options.enable:
        return plan
    folder = options.workspace
    for child in kept:
        path = child_path(folder, child.name, options.children)
        text = render_child(child.name, child.server, folder, options.children, child.hosts)
        plan.changes.append(FileChange.creating(path, text, mode=options.children.mode))
    ignore = os.path.join(folder, FOLDER, ".gitignore")
    if not os.path.exists(ignore):
        plan.changes.append(FileChange.creating(ignore, GITIGNORE, mode=0o644))
    if values:
        path = os.path.join(folder, SECRETS_FILE)
        before = read(path)
        references = {name: reference for name, (reference, _) in plan.keyring.items()}
        after = append_secrets(before or b"", references or values)
        if after != before:
            plan.changes.append(FileChange(path=path, before=before, after=after, mode=0o600))
    plan.changes += [*_config_change(kept, options, plan), *hosts]
    return plan


def _moved(outcomes: Sequence[Outcome], options: SetupOptions) -> list[MovedServer]:
    return [
        MovedServer(
            outcome.entry.source,
            outcome.entry.parsed.server,
            outcome.child,
            _profile(outcome.entry.source, options),
        )
        for outcome in outcomes
        if outcome.moves and outcome.entry.parsed.server is not None
    ]


def _needed_variables(children: Sequence[NewChild]) -> list[str]:
    """Return the variables that the children need from the environment of Switchboard."""
    names: dict[str, None] = {}
    for child in children:
        server = child.server
        texts = (
            server.command,
            *server.args,
            *server.env.values(),
            server.url,
            *server.headers.values(),
            server.cwd,
        )
        names.update(dict.fromkeys(name for text in texts for name in referenced_variables(text)))
        names.update(dict.fromkeys(child.forwarded))
    return [name for name in names if name not in ("HOME", "PATH", WORKSPACE_FOLDER)]


def move_secrets(children: Sequence[NewChild], stored: Mapping[str, str]) -> dict[str, str]:
    """Replace secrets in the children by variables, and return the values of those."""
    values: dict[str, str] = {}
    # A variable that a child takes from the environment must not be filled with the secret of another.
    variables = {**dict.fromkeys(_needed_variables(children), ""), **stored}
    for child in children:
        child.server, moved = replace_literal_secrets(child.name, child.server, {**variables, **values})
        values |= moved
    return values


def _profile(source: ServerMap, options: SetupOptions) -> str:
    # The entry of an earlier version is in a file of the user, and has the host's own profile.
    earlier = source.host.name in options.entered
    earlier = earlier and project_profile(source.host.name) not in options.hidden
    return profile_name(source, earlier or _replaces_user(source, options))


def _replaces_user(source: ServerMap, options: SetupOptions) -> bool:
    """Return True if the entry in a file of a project takes the place of the user's, and serves its children too."""
    if source.of_user or options.is_team or not options.includes_user:
        return False
    return options.share or (source.host.project_replaces_user and not source.shared)


def _host_changes(
    discovery: Discovery,
    outcomes: Sequence[Outcome],
    plan: Plan,
    options: SetupOptions,
    earlier: Mapping[str, bytes],
) -> list[FileChange]:
    """Return the changes of host files, one for each file."""
    entry_files = _files_for_entry(discovery, outcomes, options)
    by_path: dict[str, FileChange] = {}
    written: set[tuple[str, str]] = set()  # host, and name of an entry of this run
    refused: dict[str, str] = {}
    for source in discovery.sources:
        names = [
            outcome.entry.name for outcome in outcomes if outcome.moves and outcome.entry.source is source
        ]
        before = earlier.get(source.path, source.data)
        entry = ""
        if any(file is source for file in entry_files):
            there = formats.read_servers(formats.decode(before or b""), source.form, source.key)
            taken = {*there, *(name for host, name in written if host == source.host.name)}
            entry = _entry_name(discovery, source, taken, names, options)
            written.add((source.host.name, entry))
        present = _own_entries(discovery, source, options)
        if not (names or entry or present) or source.path in refused:
            continue
        change = by_path.get(source.path) or FileChange(
            path=source.path, before=before, after=before or b"", mode=0o600
        )
        try:
            change.after = _edit_host_file(change.after, source, names, entry, plan, options)
            change.after = _add_variables(change.after, source, present, options)
        except UnsafeEditError as problem:
            refused[source.path] = str(problem)
            by_path.pop(source.path, None)
            continue
        change.edits.append(ServerMapEdit(form=source.form, key=list(source.key), names=names, entry=entry))
        by_path[source.path] = change
    for path, reason in refused.items():
        _skip_file(path, reason, plan)
    return [change for change in by_path.values() if change.after != change.before]


def _edit_host_file(
    data: bytes, source: ServerMap, names: Sequence[str], entry: str, plan: Plan, options: SetupOptions
) -> bytes:
    needed = [*plan.variables, *(name for name in OWN_VARIABLES if options.environ.get(name))]
    command = [*(options.command or portable_command(source.host))]
    if (profile := _profile(source, options)) in {planned.name for planned in plan.profiles}:
        command += ["--profile", profile]
    put = {entry: _with_variables(source.host.render_entry(entry, command, needed), source, options)}
    put = put if entry else {}
    text = formats.replace_servers(formats.decode(data), source.form, source.key, names, put)
    if entry and source.host.allowlist:
        text = jsonc_edit.add_item(text, source.host.allowlist, entry)
    return text.encode()


def _with_variables(
    rendered: Mapping[str, object], source: ServerMap, options: SetupOptions
) -> dict[str, object]:
    """Return the entry for Switchboard with the variables that it must set."""
    key, present = source.host.env_key, rendered.get(source.host.env_key)
    env = {**(present if isinstance(present, dict) else {}), **options.entry_env}
    return {**rendered, key: env} if options.entry_env else dict(rendered)


def _own_entries(discovery: Discovery, source: ServerMap, options: SetupOptions) -> list[str]:
    """Return the entries for this workspace that a file has already, if they must set variables."""
    if not options.entry_env:
        return []
    return [
        server.name
        for server in discovery.servers
        if server.source is source and _is_our_entry(server, options)
    ]


def _add_variables(data: bytes, source: ServerMap, names: Sequence[str], options: SetupOptions) -> bytes:
    """Set the variables in entries for Switchboard that are already there."""
    text = formats.decode(data)
    for name in names:
        text = formats.set_object(
            text, source.form, (*source.key, name), source.host.env_key, options.entry_env
        )
    return text.encode()


def _entry_name(
    discovery: Discovery,
    source: ServerMap,
    present: Iterable[str],
    names: Sequence[str],
    options: SetupOptions,
) -> str:
    """Return a free name for our entry: `switchboard`, or with the folder's name if the host already uses that.

    In a file of a project, that name takes the place of the user's own entry; an entry beside it has another.
    """
    replaces = _replaces_user(source, options)
    names_in_use = set(present) - set(names) | {
        finding.name
        for finding in discovery.servers
        if finding.source.host is source.host
        and not (finding.source is source and finding.name in names)
        and not (replaces and finding.source.of_user and _serves(finding, options.user_workspace))
    }
    beside = not (source.of_user or replaces or source.host is ANY_FILE)
    first = PROJECT_ENTRY if beside else ENTRY_NAME
    folder = "user" if options.is_user else safe_name(os.path.basename(options.workspace))
    own = f"{ENTRY_NAME}-{folder}"
    candidates = (first, own, *(f"{own}-{number}" for number in range(2, 100)))
    return next(name for name in candidates if name not in names_in_use)


def _serves(server: DiscoveredServer, folder: str) -> bool:
    """Return True if an entry starts Switchboard for a folder."""
    return bool(folder) and server.parsed.serves_folder == folder


def _skip_file(path: str, reason: str, plan: Plan) -> None:
    """Keep the servers of a file that cannot be edited safely."""
    plan.problems.append(f"{path} {reason} It is left alone. Add the entry for Switchboard by hand.")
    for outcome in plan.outcomes:
        if outcome.entry.source.path == path and outcome.moves:
            outcome.child, outcome.skip_reason = "", reason
    used = {outcome.child for outcome in plan.outcomes}
    plan.children[:] = [child for child in plan.children if child.name in used]


def _files_for_entry(
    discovery: Discovery, outcomes: Sequence[Outcome], options: SetupOptions
) -> list[ServerMap]:
    """Return the files that get an entry for Switchboard.

    For each host it is the first file from which a server moves. A file that several hosts read gets its own entry. A
    host that already has one gets no second.
    """
    chosen: list[ServerMap] = []
    sources = [source for source in discovery.sources if source.of_user or not options.is_user]
    done = {
        finding.source.host.name
        for finding in discovery.servers
        if _is_our_entry(finding, options)
        and not finding.source.shared
        and any(finding.source is chosen_source for chosen_source in sources)
    }
    for source in sources:
        name = source.host.name
        moves = any(outcome.moves and outcome.entry.source is source for outcome in outcomes)
        if source.shared:
            own = (finding for finding in discovery.servers if finding.source is source)
            if moves and not any(_is_our_entry(finding, options) for finding in own):
                chosen.append(source)
        elif moves and (name not in done or name == ANY_FILE.name):
            done.add(name)
            chosen.append(source)
    for name in options.connect:
        files = [source for source in sources if source.host.name == name]
        if name in done or not files or any(chosen_source.host.name == name for chosen_source in chosen):
            continue
        # Beside an entry for the user workspace, one for the project belongs in a file of the project.
        of_project = [source for source in files if not source.of_user]
        beside = name in options.entered_by_user and of_project
        chosen.append(of_project[0] if beside else files[0])
    return chosen


def _is_our_entry(server: DiscoveredServer, options: SetupOptions) -> bool:
    return server.parsed.serves_folder in (".", options.workspace, *options.reached_from)


def _config_change(children: Sequence[NewChild], options: SetupOptions, plan: Plan) -> list[FileChange]:
    """Return the change of the workspace's config: what each host sees, and enabled features."""
    filters = {child.name: tools for child in children if (tools := limits(child.server))}
    sandboxes = dict(_sandboxes(children, options))
    if not filters and not sandboxes and not options.enable and not plan.profiles and not options.is_team:
        return []
    path = options.config
    before = read(path)
    try:
        form = formats.guess_format(path)
        new = before is None and form == "json"
        text = f'{{\n  "$schema": "./{CONFIG_SCHEMA}"\n}}\n' if new else formats.decode(before or b"")
        for name, tools in filters.items():
            text = formats.set_object(text, form, ("suites", name), "expose", tools)
        for name, sandbox in sandboxes.items():
            text = formats.set_object(text, form, ("suites", name), "sandbox", sandbox)
        for profile in plan.profiles:
            text = formats.set_object(text, form, ("profiles",), profile.name, profile.settings())
        for name in options.enable:
            text = formats.set_object(text, form, (), name, {"enabled": True})
        if options.is_team:
            text = _without_user(text, form)
    except UnsafeEditError as problem:
        if plan.profiles:
            hint = "Correct it, or use --share, which needs no profiles."
            message = f"{path} {problem} The profiles of hosts cannot be written."
            raise refused("setup_refused", message, hint=hint) from None
        plan.problems.append(
            f"{path} {problem} Add by hand: {', '.join((*filters, *sandboxes, *options.enable))}."
        )
        return []
    after = text.encode()
    if after == before:
        return []
    change = FileChange(path=path, before=before, after=after, mode=0o644)
    return [*(_schema_change(path) if new else []), change]


def _sandboxes(
    children: Sequence[NewChild], options: SetupOptions
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the sandbox of each new child that is a program: what it is known to need, or the chosen preset."""
    if not options.sandbox:
        return
    preset: Preset = "workspace" if options.sandbox == "known" else options.sandbox
    for child in children:
        server = child.server
        proposed = propose_sandbox(server.command, server.args, server.cwd or options.workspace, preset)
        if server.command and (proposed.is_known or options.sandbox != "known"):
            yield child.name, to_builtins(proposed.settings)


def _without_user(text: str, form: formats.Format) -> str:
    """Set that a project's entry serves only the project: everyone who works on it has their own servers beside it."""
    if "includeUser" in formats.read_servers(text, form, ()):
        return text
    if form == "toml":
        return f"includeUser = false\n{text}"
    return jsonc_edit.replace_members(text, (), [], {"includeUser": False})


def _schema_change(config: str) -> list[FileChange]:
    """Return the change that puts the schema beside the config: there editors find it, offline and in every clone."""
    path = os.path.join(os.path.dirname(config), CONFIG_SCHEMA)
    before, after = read(path), read_schema("config")
    return [] if before == after else [FileChange(path=path, before=before, after=after, mode=0o644)]
