"""`switchboard bus`: publish events, check that they flow, read the stream."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from contextlib import AsyncExitStack
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
from switchboard_mcp.cli.parser import Command, flag, option, positional
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import URL_VARIABLE, BusSettings, resolve_bus
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.features import audit_folder
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.store.opening import open_mail
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor

if TYPE_CHECKING:
    from switchboard_mcp.bus.redis_client import BusClient, StreamEntry

T = TypeVar("T")
SHOWN_BYTES = 200
MAX_SHOWN_PLACES = 5
FOLLOW_S = 0.5
STREAM = "events"


def run(invocation: Invocation) -> int:
    """Run the named action."""
    workspace = load(invocation.options)
    settings = resolve_bus(workspace.config.bus, os.environ, workspace.folder)
    if not settings.enabled:
        message = f"There is no bus: neither bus.url in the config nor {URL_VARIABLE} is set."
        hint = f'Add {{"bus": {{"url": "redis://HOST:6379"}}}}, or set {URL_VARIABLE}.'
        raise refused("config_invalid", message, hint=hint)
    commands = {"status": _status, "tail": _tail, "relay": _relay}
    return run_loop(lambda: commands[invocation.args.action](workspace, settings, invocation))


COMMAND = Command(
    "bus status|tail|relay [OPTIONS]",
    "Events over Redis Streams (bus.url in the config, or SWITCHBOARD_BUS_URL). `status` shows the local publisher\n"
    "and what Redis holds; exit code 1 if nothing flows. `relay` publishes events until stopped, for a workspace\n"
    "without a running server. `tail` reads the stream.",
    run=run,
    arguments=[
        positional("action", "status, tail or relay", choices=("status", "tail", "relay")),
        option("--last", "N", "tail: how many (default: 20)", 20),
        flag("--follow -f", "tail: follow new entries"),
    ],
    epilog="examples:\n  switchboard bus status\n  switchboard bus tail --follow --json",
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


async def _read_redis(client: BusClient) -> dict[str, object]:
    """Return the machines and the number of events. A value that cannot be used is reported and skipped."""
    malformed = client.malformed

    async def read(key: str, reply: Awaitable[T], default: T) -> T:
        try:
            return await reply
        except SwitchboardError as problem:
            if problem.failure.code != "bus_malformed":
                raise
            malformed.report(key, str(problem))
            return default

    machines = []
    for node, data in sorted((await read("nodes", client.get_all("nodes"), {})).items()):
        card = decode(data, NodeCard)
        if card is None or not nodes.is_node_id(node):
            malformed.report(f"nodes/{node}", "it is not the entry of a machine")
            continue
        machines.append(
            {
                "node": node,
                "alive": bool(await client.alive([node])),
                "host": card.host,
                "folder": card.folder,
            }
        )
    return {"machines": machines, "events": await read("events", client.stream_length("events"), 0)}


def _show(status: dict[str, object], problem: str, invocation: Invocation) -> None:
    out = invocation.console.out
    relay = status["relay"]
    out.line(f"{status['url']}: {problem or 'connected'}", "red" if problem else "green")
    if isinstance(relay, relay_status.BusStatus):
        mail = "" if relay.mail else ": mail is off, so only events are published"
        out.line(f"this machine is {relay.node}{mail}")
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
                str(machine["folder"]),
            )
            for machine in redis["machines"]
        ]
        out.table(rows, ("MACHINE", "", "HOST", "FOLDER"), optional=(2,))
        skipped = status["malformed"]
        if isinstance(skipped, list) and skipped:
            shown = ", ".join(skipped[:MAX_SHOWN_PLACES]) + (", …" if len(skipped) > MAX_SHOWN_PLACES else "")
            out.line(f"{plural(len(skipped), 'malformed value')} in Redis, skipped: {shown}", "yellow")
        if isinstance(relay, relay_status.BusStatus) and relay.malformed:
            out.line(
                f"{plural(relay.malformed, 'malformed value')} skipped since the relay began; its log has them",
                "yellow",
            )


async def _tail(workspace: Workspace, settings: BusSettings, invocation: Invocation) -> int:
    client = open_client(settings)
    try:
        entries = await client.last_entries(STREAM, invocation.args.last)
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
                entries = await client.entries_after(STREAM, after, 1000)
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
    from switchboard_mcp.bus.relay import BusRelay  # needs the extra `bus`

    path, config = os.path.join(workspace.folder, FOLDER), workspace.config
    has_mail = config.mail.enabled or await asyncio.to_thread(os.path.isdir, os.path.join(path, "inbox"))
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        store = None
        if has_mail:
            store = await stack.enter_async_context(
                await open_mail(workspace.folder, config.mail, database=config.database)
            )
        running = tasks.create_task(BusRelay(path, client, log, audit_folder(workspace), store).run())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    return 0


def _require_lock(workspace: Workspace) -> None:
    """Fail at once if another relay runs here, instead of waiting silently for its lock."""
    descriptor = nodes.acquire_lock(os.path.join(workspace.folder, ".switchboard"))
    if descriptor is None:
        raise refused("bus_busy", f"A relay already serves {workspace.folder}.")
    os.close(descriptor)
