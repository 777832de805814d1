"""`switchboard bus`: check and relay events and mail, read the streams, resend dead letters."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from shlex import quote
from typing import TYPE_CHECKING, TypeVar

import msgspec

from switchboard_mcp.app import load
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus import relay_status
from switchboard_mcp.bus.connection_url import hide
from switchboard_mcp.bus.event_log import read_waiting
from switchboard_mcp.bus.malformed import decode
from switchboard_mcp.bus.open_client import open_client
from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.parser import Command, choice, flag, option, positional
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import URL_VARIABLE, BusSettings, resolve_bus
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.features import audit_folder
from switchboard_mcp.mail.store.delivery_rules import load_rules, quotas_of
from switchboard_mcp.mail.store.remote import remote_outbox
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor

if TYPE_CHECKING:
    from switchboard_mcp.bus.redis_client import BusClient, StreamEntry

T = TypeVar("T")
SHOWN_BYTES = 200
MAX_SHOWN_PLACES = 5
FOLLOW_S = 0.5


def run(invocation: Invocation) -> int:
    """Run the named action."""
    workspace = load(invocation.options)
    settings = resolve_bus(workspace.config.bus, os.environ, workspace.folder)
    if not settings.enabled:
        message = f"There is no bus: neither bus.url in the config nor {URL_VARIABLE} is set."
        hint = f'Add {{"bus": {{"url": "redis://HOST:6379"}}}}, or set {URL_VARIABLE}.'
        raise refused("config_invalid", message, hint=hint)
    commands = {"status": _status, "tail": _tail, "relay": _relay, "replay": _replay, "forget": _forget}
    return run_loop(lambda: commands[invocation.args.action](workspace, settings, invocation))


COMMAND = Command(
    "bus status|tail|relay|replay|forget [ID …] [OPTIONS]",
    "Events, and mail between machines, over Redis Streams (bus.url in the config, or SWITCHBOARD_BUS_URL).\n"
    "`status` shows the local relay and what Redis holds; exit code 1 if nothing flows. `relay` relays\n"
    "events and mail until stopped, for a workspace without a running server. `tail` reads a stream. `replay` "
    "resends dead\n"
    "letters: those with these ids, or all; with --node it takes back messages shipped to a machine that "
    "will\nnever answer, so they go to wherever their recipient is now.\n"
    "`forget --node NODE` removes a machine that is gone, with its names and what waits for it in Redis.",
    run=run,
    arguments=[
        positional(
            "action",
            "status, tail, relay, replay or forget",
            choices=("status", "tail", "relay", "replay", "forget"),
        ),
        positional("ids", "replay: ids of dead letters (default: all)", metavar="ID", nargs="*"),
        choice(
            "--stream",
            ("in", "dead", "changes", "events"),
            "tail: which stream (default: incoming messages)",
            "in",
        ),
        option("--last", "N", "tail: how many (default: 20)", 20),
        flag("--follow -f", "tail: follow new entries"),
        option("--node", "NODE", "replay, forget: the machine that is gone"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard bus status\n"
        "  switchboard bus tail --stream dead --last 5\n"
        "  switchboard bus tail --stream events --follow --json\n"
        "  switchboard bus replay 1794748984128-0"
    ),
)


async def _status(workspace: Workspace, settings: BusSettings, invocation: Invocation) -> int:
    relay = relay_status.read(workspace.folder)
    client = open_client(settings)
    events = await asyncio.to_thread(_event_counts, workspace, relay)
    status: dict[str, object] = {"relay": relay, "url": client.shown, "redis": None, "events": events}
    problem = relay_status.describe_problem(relay)
    try:
        status["redis"] = await _read_redis(client)
    except SwitchboardError as away:
        problem = str(away)
    finally:
        await client.close()
    status["malformed"] = client.malformed.places
    if invocation.as_json:
        invocation.console.out.json(status | {"problem": problem or None})
    else:
        _show(status, problem, invocation)
    return 1 if problem else 0


class EventCounts(msgspec.Struct, frozen=True):
    """The events of this workspace: published and dropped since its relay began, and waiting now."""

    published: int
    waiting: int
    lost: int


def _event_counts(workspace: Workspace, relay: relay_status.BusStatus | None) -> EventCounts:
    waiting = read_waiting(workspace.folder, audit_folder(workspace))
    if relay is None or relay_status.is_stale(relay):
        return EventCounts(0, waiting, 0)
    return EventCounts(relay.events, waiting, relay.events_lost)


class NodeCard(msgspec.Struct):
    """The part of a machine's entry that is shown."""

    host: str = ""
    folder: str = ""


class NameHolder(msgspec.Struct):
    """The part of a name's entry that is shown."""

    node: str


async def _read_redis(client: BusClient) -> dict[str, object]:
    """Return the machines and the number of dead letters. A value that cannot be used is reported and skipped."""
    malformed = client.malformed

    async def read(key: str, reply: Awaitable[T], default: T) -> T:
        try:
            return await reply
        except SwitchboardError as problem:
            if problem.failure.code != "bus_malformed":
                raise
            malformed.report(key, str(problem))
            return default

    agents: dict[str, list[str]] = {}
    for name, claim in (await read("names", client.get_all("names"), {})).items():
        holder = decode(claim, NameHolder)
        if holder is None:
            malformed.report(f"names/{name}", "it names no machine")
        else:
            agents.setdefault(holder.node, []).append(name)
    machines = []
    for node, data in sorted((await read("nodes", client.get_all("nodes"), {})).items()):
        card = decode(data, NodeCard)
        if card is None or not nodes.is_node_id(node):
            malformed.report(f"nodes/{node}", "it is not the entry of a machine")
            continue
        counts = await read(f"in:{node}", client.stream_counts(node), (0, 0, 0))
        machines.append(
            {
                "node": node,
                "alive": bool(await client.alive([node])),
                "agents": sorted(agents.get(node, [])),
                **dict(zip(("entries", "pending", "lag"), counts, strict=True)),
                "host": card.host,
                "folder": card.folder,
            }
        )
    return {"machines": machines, "dead": await read("dead", client.stream_length("dead"), 0)}


def _show(status: dict[str, object], problem: str, invocation: Invocation) -> None:
    out = invocation.console.out
    relay = status["relay"]
    out.line(f"{status['url']}: {problem or 'connected'}", "red" if problem else "green")
    if isinstance(relay, relay_status.BusStatus):
        out.line(
            f"this machine is {relay.node}: {relay.waiting} waiting, {relay.in_flight} in flight, "
            f"{relay.backlog} to receive; {relay.shipped} shipped, {relay.stored} stored since the relay began"
            if relay.mail
            else f"this machine is {relay.node}: mail is off, so only events are published"
        )
    if isinstance(relay, relay_status.BusStatus) and (loss := relay_status.describe_loss(relay)):
        out.line(loss, "yellow")
    events = status["events"]
    if isinstance(events, EventCounts):
        lost = f", {events.lost} dropped unpublished" if events.lost else ""
        out.line(
            f"events: {events.published} published since the relay began, {events.waiting} waiting{lost}",
            "yellow" if lost or (problem and events.waiting) else "",
        )
    redis = status["redis"]
    if isinstance(redis, dict):
        rows = [
            (
                str(machine["node"]),
                "alive" if machine["alive"] else "gone",
                str(machine.get("host", "")),
                str(machine["pending"]),
                str(machine["lag"]),
                ", ".join(machine["agents"]),
            )
            for machine in redis["machines"]
        ]
        out.table(rows, ("MACHINE", "", "HOST", "PENDING", "LAG", "AGENTS"), optional=(2, 4))
        skipped = status["malformed"]
        if isinstance(skipped, list) and skipped:
            shown = ", ".join(skipped[:MAX_SHOWN_PLACES]) + (", …" if len(skipped) > MAX_SHOWN_PLACES else "")
            out.line(f"{plural(len(skipped), 'malformed value')} in Redis, skipped: {shown}", "yellow")
        if isinstance(relay, relay_status.BusStatus) and relay.malformed:
            out.line(
                f"{plural(relay.malformed, 'malformed value')} skipped since the relay began; its log has them",
                "yellow",
            )
        if redis["dead"]:
            out.line(
                f"{plural(redis['dead'], 'dead letter')}; see: switchboard bus tail --stream dead", "yellow"
            )


async def _tail(workspace: Workspace, settings: BusSettings, invocation: Invocation) -> int:
    client = open_client(settings)
    stream = invocation.args.stream
    try:
        if stream == "in":
            me = relay_status.read(workspace.folder)
            if me is None:
                message = "No relay has run here, so this machine has no stream yet."
                raise refused("bus_busy", message, hint="Run: switchboard bus relay")
            stream = f"in:{me.node}"
        entries = await client.last_entries(stream, invocation.args.last)
        while True:
            for entry in entries:
                _show_entry(entry, invocation)
            invocation.console.flush()
            if not invocation.args.follow:
                return 0
            after = entries[-1].id if entries else "0-0"
            entries = []
            while not entries:
                await asyncio.sleep(FOLLOW_S)
                entries = await client.entries_after(stream, after, 1000)
    finally:
        await client.close()


def _show_entry(entry: StreamEntry, invocation: Invocation) -> None:
    fields = {name: value.decode("utf-8", "replace") for name, value in entry.fields.items()}
    if invocation.as_json:
        invocation.console.out.json_line({"id": entry.id, **fields})
        return
    text = " ".join(f"{name}={_short(value)}" for name, value in fields.items())
    invocation.console.out.line(f"{entry.id}  {text}")


def _short(value: str) -> str:
    return value if len(value) <= SHOWN_BYTES else value[: SHOWN_BYTES - 1] + "…"


async def _relay(workspace: Workspace, settings: BusSettings, invocation: Invocation) -> int:
    redactor = Redactor()
    hide(settings.url, redactor.register)
    log = Log(
        level=invocation.args.log_level or "info", style=invocation.options.log_style, redactor=redactor
    )
    client = open_client(settings)
    _require_lock(workspace)
    store = await MessageStore.open(
        workspace.folder,
        rules=load_rules(workspace.folder, workspace.config.mail),
        quotas=quotas_of(workspace.config.mail),
    )
    async with store, asyncio.TaskGroup() as tasks:
        from switchboard_mcp.bus.relay import BusRelay  # needs the extra `bus`

        running = tasks.create_task(BusRelay(store, client, log, audit=audit_folder(workspace)).run())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    return 0


def _require_lock(workspace: Workspace) -> None:
    """Fail at once if another relay runs here, instead of waiting silently for its lock."""
    descriptor = nodes.acquire_lock(os.path.join(workspace.folder, ".switchboard"))
    if descriptor is None:
        raise refused("bus_busy", f"A relay already serves {workspace.folder}.")
    os.close(descriptor)


async def _replay(workspace: Workspace, settings: BusSettings, invocation: Invocation) -> int:
    if invocation.args.node:
        return await _take_back(workspace, invocation)
    client = open_client(settings)
    count = 0
    requested = set(invocation.args.ids)
    missing = set(requested)
    try:
        # Messages that die again in the meantime are not resent: they would circulate forever.
        after, left = "0-0", await client.stream_length("dead")
        while left > 0 and (entries := await client.entries_after("dead", after, min(left, 500))):
            after, left = entries[-1].id, left - len(entries)
            for entry in entries:
                if not requested or entry.id in requested:
                    # Sent without a sequence number: its turn has passed, so the receiver detects duplicates by id.
                    if not nodes.is_node_id(entry.text("to")):
                        continue  # Not written by a relay.
                    dropped = ("to", "reason", "seq", "base")
                    fields = {name: value for name, value in entry.fields.items() if name not in dropped}
                    await client.send([(entry.text("to"), fields)])
                    await client.delete_entries("dead", [entry.id])
                    missing.discard(entry.id)
                    count += 1
    finally:
        await client.close()
    if missing:
        message = (
            f"There is no dead letter {', '.join(sorted(missing))}; {plural(count, 'other')} sent again."
        )
        hint = "List them: switchboard bus tail --stream dead"
        raise refused("mail_not_found", message, hint=hint)
    return _show_count(count, "dead letter", "sent again", invocation)


async def _forget(workspace: Workspace, settings: BusSettings, invocation: Invocation) -> int:
    node = invocation.args.node or ""
    client = open_client(settings)
    try:
        registered = await client.get_all("nodes")
        if node not in registered or not nodes.is_node_id(node):
            message = f"There is no machine '{node[:80]}' on the bus."
            raise refused("mail_not_found", message, hint="List them: switchboard bus status")
        if await client.alive([node]):
            message = f"The relay of {node} is running."
            raise refused("bus_busy", message, hint="Stop it first: its machine would join again.")
        names = await client.forget_node(node)
    finally:
        await client.close()
    freed = f" Its names are free: {', '.join(names)}." if names else ""
    text = f"{node} was removed.{freed}"
    text += f" Take back what was shipped to it: `switchboard bus replay --node {quote(node)}`."
    invocation.report({"node": node, "names": names}, text)
    return 0


async def _take_back(workspace: Workspace, invocation: Invocation) -> int:
    _require_lock(workspace)
    async with await MessageStore.open(workspace.folder, watch=False) as store:
        shipped = (await store.run(remote_outbox.in_transit)).get(invocation.args.node, [])
        await store.run(lambda tx: remote_outbox.return_to_inbox(tx, shipped))
    return _show_count(len(shipped), "message", "taken back", invocation)


def _show_count(count: int, what: str, done: str, invocation: Invocation) -> int:
    if invocation.as_json:
        invocation.console.out.json({"count": count})
    else:
        invocation.console.out.line(f"{plural(count, what)} {done}.")
    return 0
