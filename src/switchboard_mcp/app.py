"""The composition root: creates the parts of Switchboard, connects them and runs them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, structs

from switchboard_mcp.broker.joining import NoBrokerHereError, start_and_join
from switchboard_mcp.broker.shim import NoBrokerError
from switchboard_mcp.children.catalog import Catalog, cache_folder
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.registry import ChildRegistry
from switchboard_mcp.config.load import load_workspace, require_profile
from switchboard_mcp.config.models import Config, Workspace
from switchboard_mcp.config.sections import BROKER_SWITCH
from switchboard_mcp.config.serve_flags import parse_flags
from switchboard_mcp.config.workspace_folder import nearest_workspace, served_workspace
from switchboard_mcp.errors import refused
from switchboard_mcp.features import (
    StartTask,
    observe_requests,
    open_audit,
    open_event_log,
    open_mail,
    open_pins,
    open_programs,
    open_telemetry,
    start_bridges,
)
from switchboard_mcp.gateway.factory import (
    Runtime,
    apply_views,
    attach_pipelines,
    enable_switchboard_suite,
    govern_workspace,
    load_middleware,
)
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.session import local_host
from switchboard_mcp.observability.call_record import CallObserver
from switchboard_mcp.observability.log import Level, Log, Style
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server import stdio_info
from switchboard_mcp.server.stdio import StdioServer
from switchboard_mcp.system.host_process import host_process
from switchboard_mcp.transport.process.launcher import Launcher
from switchboard_mcp.transport.stdio import Cork, Turns

if TYPE_CHECKING:
    from switchboard_mcp.gateway.programs.program_server import ProgramServer
    from switchboard_mcp.gateway.reload import Reloader
    from switchboard_mcp.gateway.telemetry import Telemetry
    from switchboard_mcp.mail.server import MailServer

T = TypeVar("T")

GARBAGE_THRESHOLD = 10_000
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# After `initialize` a host lists tools and may call one; loading the reloader must not delay that.
RELOAD_AFTER_S = 0.5
# Declared to a child that serves several hosts; each of its requests is checked against what the host declared.
SHARED_CAPABILITIES = (
    b'{"sampling":{},"elicitation":{"form":{},"url":{}},'
    b'"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}'
)
# Some servers hide tools from clients that cannot serve them. Commands show all of them; a governed child is locked
# with all of them, so it must offer them to every host.
FULL_CAPABILITIES = SHARED_CAPABILITIES[:-1] + b',"roots":{"listChanged":true}}'


class CommandOptions(Struct, frozen=True):
    """Options common to all commands."""

    workspace: str = ""
    config: str | None = None
    log_level: Level = "info"
    log_style: Style = "text"
    profile: str = ""
    reload: bool = True
    alone: bool = False
    # The default of the setting `includeUser`.
    include_user: bool = True


class Switchboard(Runtime):
    """A running Switchboard, independent of the transport it serves."""

    reloading: asyncio.Task[None] | None = None
    reloader: Reloader | None = None
    is_ending: bool = False


def workspace_folder(options: CommandOptions) -> str:
    """Return the folder named by the options, or the workspace around the current folder.

    Outside of any workspace it is the user workspace, or the current folder if there is none. For commands that serve
    or show; those that write use `project_folder`, so that nothing is written to the user workspace by accident.
    """
    return _named(options) or served_workspace(_current_folder(), os.environ)


def project_folder(options: CommandOptions) -> str:
    """Return the folder named by the options, the workspace around the current folder, or the current folder."""
    if named := _named(options):
        return named
    here = _current_folder()
    return nearest_workspace(here, os.environ.get("HOME", "")) or here


def _named(options: CommandOptions) -> str:
    if not options.workspace or os.path.isabs(options.workspace):
        return os.path.normpath(options.workspace) if options.workspace else ""
    return os.path.normpath(os.path.join(_current_folder(), options.workspace))


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        hint = "Start in an existing folder, or name one with --workspace."
        raise refused("config_invalid", "The current folder no longer exists.", hint=hint) from None


def load(options: CommandOptions) -> Workspace:
    """Load the workspace that the options name. In governed mode, only with approved children."""
    workspace = _load_ungoverned(options)
    governed = govern_workspace(workspace, os.environ)
    return workspace if governed is None else governed.workspace


def _load_ungoverned(options: CommandOptions) -> Workspace:
    """Load the workspace without applying governed mode."""
    workspace = load_workspace(
        workspace_folder(options), options.config, os.environ, include_user=options.include_user
    )
    require_profile(workspace.config, options.profile, "--profile")
    return workspace


@asynccontextmanager
async def _task_owner(log: Log) -> AsyncIterator[StartTask]:
    """Provide a function that starts tasks, and wait for them on exit. A failing task is logged and ends no other."""

    async def guarded(work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as problem:  # noqa: BLE001 - one failed task must not cancel the group, and every child with it
            log.error("internal", problem=repr(problem))

    # asyncio would print uncaught exceptions itself, unredacted.
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: log.error("internal", problem=repr(context.get("exception") or context["message"]))
    )
    try:
        async with asyncio.TaskGroup() as tasks:

            def start_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
                task = tasks.create_task(guarded(work))
                # A task cancelled before its first step never awaits `work`, and Python would warn.
                task.add_done_callback(lambda _task: work.close())
                return task

            yield start_task
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # tasks are guarded, so it is the one of the body


@asynccontextmanager
async def running(
    workspace: Workspace,
    log: Log,
    redactor: Redactor,
    *,
    pinned: bool = True,
    full_client: bool = False,
    profile: str = "",
    several_hosts: bool = False,
    recorder: Callable[[ChildContext], CallObserver] | None = None,
) -> AsyncIterator[Switchboard]:
    """Run everything except a server. On exit, all children are stopped and all tasks have ended.

    `several_hosts` may connect over stdio, each with its own profile. With `pinned=False`, for inspecting
    children, neither the lock nor the switch of governed mode is enforced.
    With `full_client`, all client capabilities are declared to children, whatever the host supports.
    `recorder` creates an observer of finished calls that wraps the audit log.
    """
    loop = asyncio.get_running_loop()
    governed = govern_workspace(workspace, os.environ)
    if governed is not None:
        workspace = governed.workspace
    pins = open_pins(workspace, log) if pinned else None
    middleware = load_middleware(workspace.config)
    telemetry = open_telemetry(workspace, log)
    # The launcher closes last: a child that is being stopped still needs its reaper.
    async with aclosing(Launcher(loop)) as launcher, _task_owner(log) as start_task:
        mail_server = open_mail(workspace, log, start_task)
        audit = open_audit(workspace, log, redactor)
        services = ChildContext(
            loop=loop,
            launcher=launcher,
            cork=Cork(Turns() if several_hosts else None),
            log=log,
            redactor=redactor,
            catalog=Catalog(cache_folder(os.environ)),
            environ=os.environ,
            workspace=workspace.folder,
            config_file=workspace.source,
            reads_pages=not pinned,
            start_task=start_task,
            builtin_apps={} if mail_server is None else {mail_server.name: mail_server},
            launch_policy=None
            if governed is None
            else structs.replace(governed.launch_policy, reads_packages=not pinned),
            disabled=governed.disabled if governed is not None and pinned else None,
            audit=audit,
            records=audit or open_event_log(workspace, log, redactor),
            pins=pins,
            several_hosts=several_hosts,
            full_capabilities=FULL_CAPABILITIES if full_client or governed is not None else b"",
        )
        if recorder is not None:
            services.recorder = recorder(services)
        enable_switchboard_suite(workspace.config, services)
        programs = open_programs(workspace, services)
        registry = ChildRegistry(workspace, services)
        gateway = _create_gateway(workspace, registry, services)
        if telemetry is not None:
            observe_requests(gateway, telemetry, loop)
        attach_pipelines(gateway.all_suites, workspace.config, services, middleware)
        apply_views(gateway, workspace, services, profile, None if governed is None else governed.disabled)
        sweeper = services.start_task(registry.sweep_forever())
        switchboard = Switchboard(workspace, registry, gateway, services, profile)
        services.find_decisive = partial(_find_decisive, switchboard)
        try:
            yield switchboard
        finally:
            sweeper.cancel()
            await _close(switchboard, programs, mail_server, telemetry)


def _find_decisive(switchboard: Switchboard) -> list[str]:
    """Return the files that decide what runs, of the workspace as it is served now and of its user."""
    from switchboard_mcp.sandbox.decisive_files import decisive_files  # Only if a child has a sandbox.

    return decisive_files(switchboard.workspace, switchboard.context.environ)


def _create_gateway(workspace: Workspace, registry: ChildRegistry, services: ChildContext) -> Gateway:
    """Create the gateway of all children, and connect it with their services."""
    gateway = Gateway(
        registry.children.values(),
        workspace.config,
        services.log,
        services.loop,
        services.flow_control,
        workspace.folder,
    )
    services.events = gateway
    gateway.records = services.records
    gateway.broker.declares_roots = bool(services.full_capabilities)
    gateway.serves_profiles = services.several_hosts
    if services.several_hosts:
        # The next broker continues the sessions, and must not reuse the request ids of this one.
        gateway.broker.id_prefix = b"%d" % (10**8 + int(time.time() * 10) % 10**8)
    return gateway


async def _close(
    switchboard: Switchboard,
    programs: ProgramServer | None,
    mail_server: MailServer | None,
    telemetry: Telemetry | None,
) -> None:
    """Stop programs and children, then close the services that they use."""
    if programs is not None:
        programs.stop()
    await _end(switchboard)
    if programs is not None:
        await programs.close()
    if mail_server is not None:
        await mail_server.close()
    recorder = switchboard.context.recorder or switchboard.context.records
    if recorder is not None:
        recorder.close()
    if telemetry is not None:
        await telemetry.close()


async def _end(switchboard: Switchboard) -> None:
    """Stop all children, then cancel requests still in progress."""
    switchboard.is_ending = True
    if switchboard.reloading is not None:
        switchboard.reloading.cancel()
    await switchboard.registry.close()
    # With the children stopped, only middleware can still hold requests.
    for session in [*switchboard.gateway.sessions]:
        switchboard.gateway.close(session)


def reload_on_change(switchboard: Switchboard, options: CommandOptions) -> None:
    """Reload the config when it changes. Nothing is loaded for it before the first host is served."""
    if not options.reload:
        return

    loop = switchboard.gateway.loop
    switchboard.gateway.on_first_response = partial(
        loop.call_later, RELOAD_AFTER_S, start_reloader, switchboard, options
    )


def start_reloader(switchboard: Switchboard, options: CommandOptions) -> None:
    """Reload the config when it changes, from now on."""
    if switchboard.is_ending or switchboard.reloader is not None:
        return
    from switchboard_mcp.gateway.reload import Reloader

    switchboard.reloader = Reloader(switchboard, lambda: _load_ungoverned(options), options.config)
    switchboard.reloading = switchboard.context.start_task(switchboard.reloader.run())


async def serve_stdio(
    workspace: Workspace, log: Log, redactor: Redactor, options: CommandOptions, alone: str = ""
) -> int:
    """Serve the host on stdin and stdout until it disconnects or a signal arrives.

    `alone` is why no broker serves it, if the config enables one.
    """
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in END_SIGNALS:
        loop.add_signal_handler(number, done.set)
    async with running(workspace, log, redactor, profile=options.profile) as switchboard:
        services = switchboard.context
        identity = local_host("", host_process(os.environ))
        front = StdioServer(switchboard.gateway, services.cork, services.flow_control, identity, log)
        reload_on_change(switchboard, options)
        _announce_later(switchboard, front, alone)
        serving = services.start_task(front.run(done))
        relay = start_bridges(switchboard, log, redactor)
        await done.wait()
        serving.cancel()
        stdio_info.remove(os.environ)
        if relay is not None:
            relay.cancel()
    return 0


def _announce_later(switchboard: Switchboard, front: StdioServer, alone: str) -> None:
    """Write the file by which `status` finds this server, a moment after the host got its first response."""
    gateway, started_ms = switchboard.gateway, round(time.time() * 1000)
    then = gateway.on_first_response

    def announce() -> None:
        if not switchboard.is_ending:
            folder = switchboard.workspace.folder
            info = stdio_info.StdioInfo(os.getpid(), folder, front.client, started_ms, alone=alone)
            stdio_info.write(info, os.environ)

    def on_first_response() -> None:
        gateway.loop.call_later(RELOAD_AFTER_S, announce)
        if then is not None:
            then()

    gateway.on_first_response = on_first_response


def prepare(options: CommandOptions) -> tuple[Redactor, Log, Workspace]:
    """Set up redaction and logging, and load the workspace."""
    _open_missing_standard_streams()
    redactor = Redactor()
    sys.excepthook = lambda kind, problem, trace: _print_crash(redactor, problem)
    log = Log(level=options.log_level, style=options.log_style, redactor=redactor)
    return redactor, log, load(options)


def log_warnings(log: Log, workspace: Workspace) -> None:
    """Log the problems of the config that do not prevent serving."""
    for warning in workspace.warnings:
        log.warning("config.warning", problem=warning.with_remedy())


def _print_crash(redactor: Redactor, problem: BaseException) -> None:
    """Print the traceback of a crash, redacted."""
    import traceback

    text = redactor.redact_text("".join(traceback.format_exception(problem)))
    os.write(2, text.encode("utf-8", "replace"))


def serve(options: CommandOptions) -> int:
    """Serve over stdio: the command a host runs."""
    redactor, log, workspace = prepare(options)
    alone = ""
    if not options.alone and uses_broker(workspace.config) and parse_flags(sys.argv[1:]) is not None:
        try:
            return start_and_join(sys.argv[1:], os.environ)
        except NoBrokerHereError as problem:
            log.debug("broker.none", reason=str(problem))
        except NoBrokerError as problem:
            alone = str(problem)
            log.info("broker.none", reason=alone, note="this session is served in its own process")
    log_warnings(log, workspace)
    if os.isatty(0):
        log.info(
            "serving", note="MCP over stdio, for a host to start; `switchboard list` shows the suites here"
        )
    return run(lambda: serve_stdio(workspace, log, redactor, options, alone))


def uses_broker(config: Config) -> bool:
    """Return True if stdio sessions are to share one process."""
    switch, enabled = os.environ.get(BROKER_SWITCH, ""), config.broker.enabled
    if config.governance.mode == "governed":
        return enabled is True and switch != "off"
    return switch == "on" or (enabled is not False and switch != "off")


def _open_missing_standard_streams() -> None:
    """Open /dev/null for closed standard streams, so that no other file gets their descriptor."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an event loop; on uvloop if it is installed, for lower latency."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as factory
    # What is loaded now stays. Calls leave no cycles, so reference counting frees them and collections can be rare.
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())
