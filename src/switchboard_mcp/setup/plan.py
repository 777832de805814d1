"""Deciding what `init` does with what was found: which entry becomes which child, and what every file becomes.

Pure decisions: nothing is written here. Owns names, merging of the same server from several hosts, and which file of a
host keeps the one entry for Switchboard.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from switchboard_mcp.setup.child_entries import (
    FOLDER,
    OWN,
    SECRETS,
    ChildrenFolder,
    child_path,
    child_text,
    known_secrets,
    problem_of,
    safe_name,
    with_secrets,
    without_literals,
)
from switchboard_mcp.setup.dialects import ENTRY_NAME, HostServer, anywhere, switchboard_entry
from switchboard_mcp.setup.discovery import DiscoveredServer, Discovery, ServerMap
from switchboard_mcp.setup.edit import formats, jsonc_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.hosts import ANY_FILE
from switchboard_mcp.setup.journal import Edit, FileChange, read
from switchboard_mcp.setup.variable_syntax import references
from switchboard_mcp.system.atomic_write import GITIGNORE

# Switchboard itself looks at these; Codex hands nothing down that is not named.
OWN_VARIABLES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


class Outcome(Struct, kw_only=True):
    """What happens to one entry: it becomes `child`, or it stays and says why."""

    finding: DiscoveredServer
    child: str = ""
    stays: str = ""
    joins: str = ""  # The entry that this child was made from first, where it is another.

    @property
    def moves(self) -> bool:
        """Whether it moves."""
        return bool(self.child)


class NewChild(Struct, kw_only=True):
    """A child to be made."""

    name: str
    server: HostServer
    passes: list[str] = []


class ExistingSetup(Struct, frozen=True, kw_only=True):
    """What the workspace has already: children by name, and names that are taken."""

    children: dict[str, HostServer]
    names: set[str]


class Plan(Struct, kw_only=True):
    """Everything that would be done."""

    outcomes: list[Outcome]
    children: list[NewChild]
    changes: list[FileChange]
    troubles: list[str]
    variables: list[str]
    secrets: dict[str, str]

    @property
    def moving(self) -> list[Outcome]:
        """The entries that move."""
        return [outcome for outcome in self.outcomes if outcome.moves]


def decide(survey: Discovery, present: ExistingSetup, workspace: str) -> tuple[list[Outcome], list[NewChild]]:
    """Which entry becomes which child."""
    outcomes: list[Outcome] = []
    made: dict[str, NewChild] = {}
    origin: dict[str, str] = {}
    for finding in survey.findings:
        reading, server = finding.reading, finding.reading.server
        if server is None:
            outcomes.append(Outcome(finding=finding, stays=reading.stays))
            continue
        if problem := problem_of(safe_name(finding.name), server, workspace):
            outcomes.append(Outcome(finding=finding, stays=problem))
            continue
        same = _same(server, {**present.children, **{name: child.server for name, child in made.items()}})
        if same is None:
            name = _free_name(finding, present.names | made.keys())
            made[name] = NewChild(name=name, server=server, passes=list(reading.passes))
            origin[name] = f"{finding.source.host.name}: {finding.name}"
            outcomes.append(Outcome(finding=finding, child=name))
            continue
        if same in made:
            made[same] = _joined(made[same], server, reading.passes)
        outcomes.append(
            Outcome(finding=finding, child=same, joins=origin.get(same, "a child that is there already"))
        )
    return outcomes, list(made.values())


def _same(server: HostServer, children: Mapping[str, HostServer]) -> str | None:
    return next((name for name, other in children.items() if other.identity == server.identity), None)


def _joined(child: NewChild, server: HostServer, passes: Sequence[str]) -> NewChild:
    """Where one host uses a server and another has it switched off, it is used."""
    first = child.server
    times = [each for each in (first.timeout_ms, server.timeout_ms) if each is not None]
    merged = structs.replace(
        first,
        disabled=first.disabled and server.disabled,
        timeout_ms=max(times, default=None),
        description=first.description or server.description,
        oauth=first.oauth if first.oauth is not None else server.oauth,
    )
    return NewChild(name=child.name, server=merged, passes=[*child.passes, *passes])


def _free_name(finding: DiscoveredServer, taken: set[str]) -> str:
    name = safe_name(finding.name)
    if name not in taken:
        return name
    own = f"{name}-{finding.source.host.name}"
    return next(
        each for each in (own, *(f"{own}-{number}" for number in range(2, 1000))) if each not in taken
    )


class SetupOptions(Struct, frozen=True, kw_only=True):
    """What the person wants."""

    workspace: str
    # The settings of the workspace, whether the file exists or not.
    config: str
    # What a host runs. Where it is empty, each gets one that is good on everybody's machine.
    command: list[str]
    environ: Mapping[str, str]
    home: ChildrenFolder = OWN
    move_secrets: bool = False
    enable: tuple[str, ...] = ()
    # Hosts that get an entry also where nothing is moved from them.
    connect: tuple[str, ...] = ()


def make_plan(
    survey: Discovery, outcomes: Sequence[Outcome], children: Sequence[NewChild], wanted: SetupOptions
) -> Plan:
    """What every file becomes."""
    used = {outcome.child for outcome in outcomes}
    kept = [child for child in children if child.name in used]
    values: dict[str, str] = {}
    if wanted.move_secrets:
        values = move_secrets(kept, known_secrets(read(os.path.join(wanted.workspace, SECRETS)) or b""))
    plan = Plan(
        outcomes=list(outcomes),
        children=kept,
        changes=[],
        troubles=list(survey.troubles),
        variables=_variables(kept),
        secrets=values,
    )
    hosts = _host_changes(survey, outcomes, plan, wanted)
    if not kept and not hosts and not wanted.enable:
        return plan
    folder = wanted.workspace
    for child in kept:
        path = child_path(folder, child.name, wanted.home)
        text = child_text(child.name, child.server, folder, wanted.home)
        plan.changes.append(FileChange.creating(path, text, mode=wanted.home.mode))
    ignore = os.path.join(folder, FOLDER, ".gitignore")
    if not os.path.exists(ignore):
        plan.changes.append(FileChange.creating(ignore, GITIGNORE, mode=0o644))
    if values:
        path = os.path.join(folder, SECRETS)
        before = read(path)
        after = with_secrets(before or b"", values)
        if after != before:
            plan.changes.append(FileChange(path=path, before=before, after=after, mode=0o600))
    plan.changes += [*_config_change(kept, wanted, plan), *hosts]
    return plan


def _variables(children: Sequence[NewChild]) -> list[str]:
    """Variables that the children need from where Switchboard is started."""
    found: dict[str, None] = {}
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
        found.update(dict.fromkeys(name for text in texts for name in references(text)))
        found.update(dict.fromkeys(child.passes))
    return [name for name in found if name not in ("HOME", "PATH")]


def move_secrets(children: Sequence[NewChild], known: Mapping[str, str]) -> dict[str, str]:
    """Write variables in place of secrets; gives their values."""
    values: dict[str, str] = {}
    for child in children:
        child.server, found = without_literals(child.name, child.server, {**known, **values})
        values |= found
    return values


def _host_changes(
    survey: Discovery, outcomes: Sequence[Outcome], plan: Plan, wanted: SetupOptions
) -> list[FileChange]:
    """The files of the hosts, each once, whatever changes in it."""
    keepers = _keepers(survey, outcomes, wanted)
    by_path: dict[str, FileChange] = {}
    spoilt: dict[str, str] = {}
    for source in survey.sources:
        names = [each.finding.name for each in outcomes if each.moves and each.finding.source is source]
        entry = _entry_name(survey, source, names, wanted) if any(each is source for each in keepers) else ""
        if (not names and not entry) or source.path in spoilt:
            continue
        change = by_path.get(source.path) or FileChange(
            path=source.path, before=source.data, after=source.data or b"", mode=0o600
        )
        try:
            change.after = _edited(change.after, source, names, entry, plan, wanted)
        except UnsafeEditError as problem:
            spoilt[source.path] = str(problem)
            by_path.pop(source.path, None)
            continue
        change.edits.append(Edit(form=source.form, key=list(source.key), names=names, entry=entry))
        by_path[source.path] = change
    for path, reason in spoilt.items():
        _leave(path, reason, plan)
    return [change for change in by_path.values() if change.after != change.before]


def _edited(
    data: bytes, source: ServerMap, names: Sequence[str], entry: str, plan: Plan, wanted: SetupOptions
) -> bytes:
    needed = [*plan.variables, *(name for name in OWN_VARIABLES if wanted.environ.get(name))]
    command = wanted.command or anywhere(source.host)
    put = {entry: switchboard_entry(source.host, entry, command, needed)} if entry else {}
    text = formats.swap(formats.decode(data), source.form, source.key, names, put)
    if entry and source.host.name == "gemini":
        text = jsonc_edit.with_item(text, ("mcp", "allowed"), entry)
    return text.encode()


def _entry_name(survey: Discovery, source: ServerMap, names: Sequence[str], wanted: SetupOptions) -> str:
    """One name for all; where the host has it for another folder already, this folder's name is added."""
    taken = {
        finding.name
        for finding in survey.findings
        if finding.source.host is source.host and not (finding.source is source and finding.name in names)
    }
    own = f"{ENTRY_NAME}-{safe_name(os.path.basename(wanted.workspace))}"
    wishes = (ENTRY_NAME, own, *(f"{own}-{number}" for number in range(2, 100)))
    return next(name for name in wishes if name not in taken)


def _leave(path: str, reason: str, plan: Plan) -> None:
    """A file that cannot be changed keeps its servers, and they do not move."""
    plan.troubles.append(f"{path} {reason} It is left alone; put the entry for Switchboard there by hand.")
    for outcome in plan.outcomes:
        if outcome.finding.source.path == path and outcome.moves:
            outcome.child, outcome.stays = "", reason
    used = {outcome.child for outcome in plan.outcomes}
    plan.children[:] = [child for child in plan.children if child.name in used]


def _keepers(survey: Discovery, outcomes: Sequence[Outcome], wanted: SetupOptions) -> list[ServerMap]:
    """The file of each host that gets the entry: the first something moves from. A file that several hosts read gets
    its own, and no host gets a second one beside an entry that it has.
    """
    found: list[ServerMap] = []
    done = {
        finding.source.host.name
        for finding in survey.findings
        if _is_here(finding, wanted) and not finding.source.shared
    }
    for source in survey.sources:
        name = source.host.name
        moves = any(outcome.moves and outcome.finding.source is source for outcome in outcomes)
        if source.shared:
            own = (finding for finding in survey.findings if finding.source is source)
            if moves and not any(_is_here(finding, wanted) for finding in own):
                found.append(source)
        elif moves and (name not in done or name == ANY_FILE.name):
            done.add(name)
            found.append(source)
    for source in survey.sources:
        name = source.host.name
        if (
            name in wanted.connect
            and name not in done
            and not any(each.host is source.host for each in found)
        ):
            found.append(source)
    return found


def _is_here(finding: DiscoveredServer, wanted: SetupOptions) -> bool:
    return finding.reading.serves in (".", wanted.workspace)


def _config_change(children: Sequence[NewChild], wanted: SetupOptions, plan: Plan) -> list[FileChange]:
    """Settings that belong to the move: which tools of a child were allowed, and suites that are switched on."""
    filters = {
        child.name: {
            name: tools
            for name, tools in (("allow", child.server.allow), ("deny", child.server.deny))
            if tools
        }
        for child in children
        if child.server.allow or child.server.deny
    }
    if not filters and not wanted.enable:
        return []
    path = wanted.config
    before = read(path)
    try:
        text = formats.decode(before or b"")
        form = formats.format_of(path)
        for name, tools in filters.items():
            text = _set(text, form, ("suites", name), "expose", tools)
        for name in wanted.enable:
            text = _set(text, form, (), name, {"enabled": True})
    except UnsafeEditError as problem:
        plan.troubles.append(f"{path} {problem} Put in by hand: {', '.join((*filters, *wanted.enable))}.")
        return []
    after = text.encode()
    return [] if after == before else [FileChange(path=path, before=before, after=after, mode=0o644)]


def _set(
    text: str, form: formats.Format, key: tuple[str, ...], name: str, value: Mapping[str, object]
) -> str:
    """Put an object into the settings; members it has already stay."""
    present = formats.servers(text, form, (*key, name))
    if all(present.get(each) == item for each, item in value.items()):
        return text
    if form == "json":
        rest = [each for each in value if each in present]
        return jsonc_edit.swap(text, (*key, name), rest, value)
    if present:
        raise UnsafeEditError(f"has `{'.'.join((*key, name))}` already.")
    return formats.swap(text, form, key, [], {name: value})
