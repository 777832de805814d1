"""Runs the broker: one background process that serves the stdio sessions of a workspace with one set of children.

Forked from the process of a host (`broker.shim`), which has bound the socket and holds the lock that this process
inherits. Everything that a session may differ in is checked when it joins: sessions of one broker have the same user,
sandbox, environment and config, so a child is started identically for all of them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

import switchboard_mcp
from switchboard_mcp import __version__
from switchboard_mcp.app import (
    END_SIGNALS,
    RELOAD_AFTER_S,
    CommandOptions,
    Switchboard,
    load,
    log_warnings,
    prepare,
    reload_on_change,
    run,
    running,
    start_reloader,
    uses_broker,
    workspace_folder,
)
from switchboard_mcp.broker.address import is_noise, without_noise
from switchboard_mcp.broker.client_connection import (
    HOST_DESCRIPTORS,
    NO_DESCRIPTORS,
    NOT_OUR_PROTOCOL,
    RefusedError,
    read_hello,
    reply,
)
from switchboard_mcp.broker.hello import Hello
from switchboard_mcp.broker.leftovers import remove_files, remove_leftovers
from switchboard_mcp.broker.peers import peer_of
from switchboard_mcp.broker.shim import BACKLOG
from switchboard_mcp.config.discover import WORKSPACE_FOLDER
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.serve_flags import parse_flags
from switchboard_mcp.config.variables import referenced_variables
from switchboard_mcp.config.watch_paths import ConfigVersion, config_version
from switchboard_mcp.errors import SwitchboardError, as_text
from switchboard_mcp.features import start_bridges
from switchboard_mcp.gateway.reload import isolate
from switchboard_mcp.gateway.session import Session, local_host
from switchboard_mcp.gateway.status import child_uses, session_statuses
from switchboard_mcp.gateway.suites.profile_suite import profile_viewer
from switchboard_mcp.observability.log import Log, LogRecord, stderr_writer
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server import stdio_info
from switchboard_mcp.server.broker_report import BrokerReport
from switchboard_mcp.server.call_watch import CallWatch
from switchboard_mcp.server.handed_over import HandedOverHost
from switchboard_mcp.server.session_logs import SessionLogs
from switchboard_mcp.system.host_process import host_process
from switchboard_mcp.system.open_files import has_room
from switchboard_mcp.system.processes import list_ancestors, started_at
from switchboard_mcp.system.user_folders import user_workspace
from switchboard_mcp.transport.session_journal import Journal, JournalError

if TYPE_CHECKING:
    from switchboard_mcp.broker_http import BrokerHttp, DashboardLink
    from switchboard_mcp.children.context import ChildHandle

# A client sends its message at once; one that does not is another program.
HELLO_TIMEOUT_S = 5.0
# Accepted per readiness of the listener, so that a burst of joins does not stall the sessions.
ACCEPT_AT_ONCE = 16
ACCEPT_AGAIN_S = 1.0
CONFIG_CHANGED = "the config has changed and is not applied there yet; see `switchboard broker restart`"
# A planned restart waits this long for calls in progress; the others are answered by the next broker.
DRAIN_S, DRAIN_POLL_S = 20.0, 0.02
MAX_LOG_BYTES = 1024 * 1024
# How often the files of the package are looked at: one `stat`.
UPGRADE_POLL_S = 1.0


def package_stamp() -> tuple[int, int] | None:
    """Return what changes when another version is installed in place of this one; None while there is none."""
    try:
        found = os.stat(switchboard_mcp.__file__)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


class BrokerSession(Struct, eq=False):
    """One session: the host, and how it was started."""

    host: HandedOverHost
    options: CommandOptions
    pid: int
    started_at: float
    log: Log
    stderr: int
    task: asyncio.Task[None] | None = None
    abandoned: bool = False  # the next broker continues it


class Broker:
    """Accepts sessions and serves them until the last one has ended."""

    def __init__(
        self, switchboard: Switchboard, options: CommandOptions, listener: socket.socket, path: str, log: Log
    ) -> None:
        self._switchboard = switchboard
        self._options = options
        self._listener = listener
        self._path = path
        self._log = log
        self._loop = switchboard.gateway.loop
        self._sessions: list[BrokerSession] = []
        self._joining = 0
        self._ending = False
        self._done = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None
        self._started_at = time.time()
        self._joined = 0
        self._watch = CallWatch(switchboard)
        self._http: BrokerHttp | None = None
        switchboard.gateway.broker.on_request_of_no_call = self._isolate
        self.logs = SessionLogs(log, switchboard.registry)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._stamp = package_stamp()

    async def run(self) -> None:
        """Serve until the broker is idle, or is stopped."""
        for number in END_SIGNALS:
            self._loop.add_signal_handler(number, self._stop_now)
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)  # from now on, clients see that they are connected to this process
        self._loop.add_reader(self._listener.fileno(), self._accept)
        self._wait_for_sessions()
        # Not at once: the host that has started this process waits for its first answer.
        self._loop.call_later(RELOAD_AFTER_S, remove_leftovers, os.path.dirname(self._path))
        self._loop.call_later(UPGRADE_POLL_S, self._look_for_upgrade)
        await self._done.wait()

    def _look_for_upgrade(self) -> None:
        """Hand the sessions to a new broker if the installed package has changed: code that is loaded late must fit."""
        if self._ending:
            return
        if package_stamp() != self._stamp:
            self._log.info("broker.upgraded", note="the installed package has changed")
            self._switchboard.context.start_task(self._drain(DRAIN_S))
            return
        self._loop.call_later(UPGRADE_POLL_S, self._look_for_upgrade)

    # Connections

    def _accept(self) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except OSError as problem:
                if problem.errno in (errno.EMFILE, errno.ENFILE):
                    self._refuse_next_client()
                return  # otherwise no client is waiting
            connection.setblocking(False)
            self._joining += 1
            self._switchboard.context.start_task(self._serve(connection))

    def _refuse_next_client(self) -> None:
        """Refuse the next client, which then serves alone. The spare descriptor makes room for its connection."""
        with suppress(OSError):
            os.close(self._spare)
            connection, _ = self._listener.accept()
            reply(connection, f"no {NO_DESCRIPTORS}")
            connection.close()
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._spare = -1
            # The system has no more. A listener that stays ready must not keep the loop busy.
            self._loop.remove_reader(self._listener.fileno())
            self._loop.call_later(ACCEPT_AGAIN_S, self._accept_again)

    def _accept_again(self) -> None:
        if not self._ending:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    async def _serve(self, connection: socket.socket) -> None:
        """Serve one connection: a session, or a request about the broker."""
        descriptors: list[int] = []
        session: BrokerSession | None = None
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await read_hello(connection, descriptors)
            if hello.kind == "join":
                await self._refresh_config()
                session = self._join(connection, hello, descriptors)
            elif hello.kind == "ping":
                reply(connection, "ok")
            elif hello.kind in ("status", "dashboard"):
                async with asyncio.timeout(HELLO_TIMEOUT_S):
                    answer = self._report(hello.arguments) if hello.kind == "status" else await self._link()
                    await self._loop.sock_sendall(connection, encode(answer) + b"\n")
            else:
                self._stop_or_restart(connection, hello)
        except RefusedError as problem:
            reply(connection, f"no {problem}")
        except MemoryError:
            reply(connection, "no it has no memory left")
        except (TimeoutError, OSError) as problem:
            self._log.info("broker.refused", reason=repr(problem))
        finally:
            self._joining -= 1
            for descriptor in descriptors:
                os.close(descriptor)
            if session is None:
                connection.close()
                self._wait_for_sessions()
        if session is not None:
            await self._serve_session(session, connection)

    def _stop_or_restart(self, connection: socket.socket, hello: Hello) -> None:
        """End the broker, as its user asks; for a restart, the next broker continues the sessions."""
        if hello.kind == "stop" and self._sessions and "--force" not in hello.arguments:
            raise RefusedError(f"{len(self._sessions)} sessions use it. Close them, or add --force")
        reply(connection, "ok")
        if hello.kind == "stop":
            for session in self._sessions:
                session.host.host_has_gone()
            self._end()
        else:
            limit_s = 0.0 if "--force" in hello.arguments else DRAIN_S
            self._switchboard.context.start_task(self._drain(limit_s))

    # Sessions

    async def _refresh_config(self) -> None:
        """Apply the config as it is now, since a process that is started now would use it.

        Raises RefusedError if that is not possible. The session is then served alone, or its process reports the
        problem.
        """
        if not self._joined:
            return  # the config was loaded just now
        start_reloader(self._switchboard, self._options)
        reloader = self._switchboard.reloader
        if reloader is None:
            return
        await reloader.refresh()
        if reloader.last_refusal:
            raise RefusedError("the config cannot be used any more")
        if reloader.restart_only:
            keys = ", ".join(reloader.restart_only)
            raise RefusedError(f"settings have changed that need `switchboard broker restart`: {keys}")

    def _join(self, connection: socket.socket, hello: Hello, descriptors: list[int]) -> BrokerSession:
        """Open the session of a host. The descriptors that it keeps are removed from the list."""
        if self._ending:
            raise OSError("the broker is ending")  # without a reply, the client joins the next one
        if hello.version != __version__:
            reply(connection, f"version {__version__}")
            raise OSError(f"version {hello.version} wants to join")
        options = self._check(hello, descriptors)
        _require_connected(connection)
        if not has_room():
            raise RefusedError(NO_DESCRIPTORS)
        try:
            journal = Journal(os.dup(descriptors[3]))
        except (OSError, ValueError, JournalError) as problem:
            raise RefusedError(str(problem)) from None
        if journal.is_new and self._config_has_changed():
            journal.close()
            raise RefusedError(CONFIG_CHANGED)
        reply(connection, "ok")
        stdin, stdout, stderr = descriptors[:3]
        switchboard = self._switchboard
        log = Log(
            options.log_level,
            options.log_style,
            redactor=switchboard.context.redactor,
            write=stderr_writer(stderr),
        )
        gateway, cork = switchboard.gateway, switchboard.context.cork
        pid = peer_of(connection)[0]
        parent = next(iter(list_ancestors(pid)), 0)
        # The process that the host has started is as old as the session, however often brokers were replaced.
        opened_at = (started_at(pid) or time.time() * 1000) / 1000
        process = host_process(hello.environ, pid, parent)
        identity = local_host(profile_viewer(options.profile), process, pid, opened_at)
        host = HandedOverHost(
            gateway, cork, switchboard.context.flow_control, identity, (stdin, stdout), journal, log
        )
        del descriptors[:3]
        if journal.is_new:
            log.debug("broker.joined", pid=os.getpid(), log=f"{self._path}.log")
            log_warnings(log, switchboard.workspace)
            self.logs.repeat_start(log)
        session = BrokerSession(host, options, pid, opened_at, log, stderr)
        self._sessions.append(session)
        self.logs.add(host.session, log)
        self._joined += 1
        if self._idle is not None:
            self._idle.cancel()
        return session

    def _config_has_changed(self) -> bool:
        """Return True if a new session would get a config other than that of the files: it may allow more."""
        switchboard = self._switchboard
        current = config_version(switchboard.workspace.folder, self._options.config)
        return current != switchboard.config_version

    def _check(self, hello: Hello, descriptors: list[int]) -> CommandOptions:
        """Return the options of a session that may join."""
        config = self._switchboard.workspace.config
        flags = parse_flags(hello.arguments)
        if flags is None or len(descriptors) != HOST_DESCRIPTORS:
            raise RefusedError(NOT_OUR_PROTOCOL)
        if without_noise(hello.environ) != dict(os.environ):
            raise RefusedError("its environment differs")
        if not uses_broker(config):
            raise RefusedError("it is disabled in the config")
        options = CommandOptions(**flags)  # type: ignore[arg-type]  # checked by the parser
        if options.profile and options.profile not in config.profiles:
            raise RefusedError(f"there is no profile '{options.profile}'")
        return options

    async def _serve_session(self, session: BrokerSession, connection: socket.socket) -> None:
        done = asyncio.Event()
        session.task = asyncio.current_task()
        announcing = self._loop.call_later(RELOAD_AFTER_S, self._announce, session)
        control = connection.fileno()
        self._loop.add_reader(control, self._on_control, session, connection)
        try:
            await session.host.run(done)
        finally:
            self._loop.remove_reader(control)
            announcing.cancel()
            self._sessions.remove(session)
            self.logs.remove(session.host.session)
            if not session.abandoned:
                stdio_info.remove(os.environ, session.pid)
                session.host.close()
                if not self._sessions and not self._ending:
                    # As without a broker: children end with the session, and the next one starts new ones.
                    await self._switchboard.registry.stop_processes()
                # When the process of the session ends, its calls are in the audit log.
                records = self._switchboard.gateway.records
                if records is not None:
                    await asyncio.to_thread(records.flush)
                reply(connection, str(session.host.exit_code))
                connection.close()
            os.close(session.stderr)
            self._wait_for_sessions()

    def _announce(self, session: BrokerSession) -> None:
        """Write the file by which `status` finds a session."""
        folder, started_ms = self._switchboard.workspace.folder, round(session.started_at * 1000)
        info = stdio_info.StdioInfo(session.pid, folder, session.host.client, started_ms, os.getpid())
        stdio_info.write(info, os.environ)

    def _on_control(self, session: BrokerSession, connection: socket.socket) -> None:
        """End a session whose process has ended. It sends nothing after its first message."""
        try:
            connection.recv(1)
        except BlockingIOError:
            return
        except OSError:
            pass  # it has ended without reading the reply
        self._loop.remove_reader(connection.fileno())
        session.host.host_has_gone()

    # The end

    def _wait_for_sessions(self) -> None:
        if self._sessions or self._joining:
            return
        if self._idle is not None:
            self._idle.cancel()
        linger_s = self._switchboard.workspace.config.broker.linger_ms / 1000
        self._idle = self._loop.call_later(linger_s, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if not self._sessions and not self._joining:
            self._end()

    def _stop_now(self) -> None:
        """End at a signal. The sessions go to the next broker, which answers their open requests."""
        for session in self._sessions:
            session.host.abandon()
            session.abandoned = True
            if session.task is not None:
                session.task.cancel()
        self._end()

    async def _drain(self, limit_s: float) -> None:
        """Let calls in progress finish, then hand all sessions to the next broker."""
        if self._ending:
            return
        self._stop_accepting()
        for session in self._sessions:
            session.host.pause()
        deadline = self._loop.time() + limit_s
        # An event would slow down every call.
        while any(session.host.is_busy for session in self._sessions) and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)
        self._log.info("broker.restarting", sessions=len(self._sessions))
        self._stop_now()

    def _stop_accepting(self) -> None:
        """Stop accepting. Clients that have connected join the next broker once this one has ended."""
        if not self._ending:
            self._ending = True
            self._loop.remove_reader(self._listener.fileno())
            with suppress(OSError):
                os.unlink(self._path)

    def _end(self) -> None:
        self._stop_accepting()
        self._done.set()

    # Reports

    def _report(self, arguments: list[str]) -> BrokerReport:
        gateway = self._switchboard.gateway
        timelines = self._watch.log.timelines if self._watch.log is not None else {}
        return BrokerReport(
            pid=os.getpid(),
            version=__version__,
            workspace=self._switchboard.workspace.folder,
            started_at=round(self._started_at * 1000),
            log=f"{self._path}.log",
            hosts_served=self._joined,
            sessions=session_statuses(session.host.session for session in self._sessions),
            children=child_uses(gateway.all_suites.values(), timelines),
        )

    async def _link(self) -> DashboardLink:
        """Return a link to the dashboard. Starts its server if it is not running."""
        try:
            if self._http is None:
                from switchboard_mcp.broker_http import BrokerHttp  # needs the extra `http`

                self._http = BrokerHttp(self._switchboard, self._watch, lambda: self._joined)
            return await self._http.link()
        except ImportError:
            raise RefusedError("the dashboard needs the extra http") from None
        except SwitchboardError as problem:
            raise RefusedError(as_text(problem.failure)) from None

    async def close(self) -> None:
        """Close the dashboard, if it was opened."""
        if self._http is not None:
            await self._http.stop()

    def _isolate(self, child: ChildHandle, sole_user: Session | None) -> None:
        isolate(self._switchboard, child.name, sole_user)


async def serve_broker(
    workspace: Workspace,
    log: Log,
    redactor: Redactor,
    options: CommandOptions,
    listener: socket.socket,
    path: str,
    version: ConfigVersion,
) -> int:
    """Serve the sessions that join until the last has ended."""
    start_records: list[LogRecord] = []
    log.sink.listener = start_records.append
    async with running(workspace, log, redactor, several_hosts=True) as switchboard:
        switchboard.config_version = version
        reload_on_change(switchboard, options)
        relay = start_bridges(switchboard, log, redactor)
        broker = Broker(switchboard, options, listener, path, log)
        for record in start_records:
            broker.logs.keep(record)
        await broker.run()
        await broker.close()
        if relay is not None:
            relay.cancel()
    # Children have stopped, so the next broker may start.
    with suppress(OSError):
        remove_files(path)
    remove_leftovers(os.path.dirname(path))
    return 0


def _require_connected(connection: socket.socket) -> None:
    """Raise OSError if the client has given up: it serves its host itself, so nothing may be read from the pipes."""
    with suppress(BlockingIOError):
        if not connection.recv(1, socket.MSG_PEEK):
            raise OSError("the client has disconnected")


def _bounded_log(descriptor: int = 2) -> Callable[[bytes], bool | None]:
    """Return a writer to the log file, which starts over when it is large."""
    write = stderr_writer(descriptor)

    def bounded(line: bytes) -> bool | None:
        if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
            os.ftruncate(descriptor, 0)
        return write(line)

    return bounded


def _refuse_all(listener: socket.socket, reason: str) -> None:
    """Refuse the clients that wait, which then serve alone and report the problem themselves."""
    listener.setblocking(False)
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            reply(connection, f"no {reason}")
            connection.close()


def _require_no_noise(workspace: Workspace) -> None:
    """Refuse a workspace with a child that refers to a variable which brokers run without.

    In the user workspace, the folder of the workspace is one of them: it is that in which a host starts a session.
    """
    is_user = os.path.realpath(workspace.folder) == os.path.realpath(user_workspace(os.environ) or os.devnull)
    for spec in workspace.children:
        referenced = referenced_variables(spec)
        if WORKSPACE_FOLDER in referenced and is_user:
            raise RefusedError(f"child '{spec.name}' works in the folder of its session ({WORKSPACE_FOLDER})")
        names = sorted(name for name in referenced if is_noise(name))
        if names:
            raise RefusedError(f"child '{spec.name}' refers to {names[0]}, which differs between sessions")


def serve_sessions(path: str, listener_fd: int, lock_fd: int, arguments: list[str]) -> int:
    """Run a broker. The lock stays open for as long as this process lives."""
    for descriptor in (listener_fd, lock_fd):
        os.set_inheritable(descriptor, False)
    listener = socket.socket(fileno=listener_fd)
    flags = parse_flags(arguments) or {}
    flags.pop("profile", None)  # the sessions have one each
    options = CommandOptions(**flags)  # type: ignore[arg-type]  # checked by the parser
    redactor = Redactor()
    log = Log(options.log_level, "json", redactor=redactor, write=_bounded_log())
    try:
        version = config_version(workspace_folder(options), options.config)  # before anything is read
        workspace = load(options)
        _require_no_noise(workspace)
    except (SwitchboardError, RefusedError) as problem:
        log.error("broker.refused", reason=str(problem))
        _refuse_all(listener, str(problem))
        return 2
    config = os.path.abspath(options.config) if options.config else None
    options = replace(options, workspace=workspace.folder, config=config)
    os.chdir(workspace.folder)
    log.info("broker.started", pid=os.getpid(), workspace=workspace.folder)
    return run(lambda: serve_broker(workspace, log, redactor, options, listener, path, version))


async def serve_continued(
    workspace: Workspace, log: Log, redactor: Redactor, options: CommandOptions, journal: Journal
) -> int:
    """Serve the session of this process, which a broker has served before."""
    done = asyncio.Event()
    for number in END_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    async with running(workspace, log, redactor, several_hosts=True) as switchboard:
        gateway = switchboard.gateway
        context = switchboard.context
        # The process that the host has started: the agent that it has registered with the broker is found by it.
        identity = local_host(profile_viewer(options.profile), host_process(os.environ))
        pipes = (os.dup(0), os.dup(1))
        reload_on_change(switchboard, options)
        host = HandedOverHost(gateway, context.cork, context.flow_control, identity, pipes, journal, log)
        serving = switchboard.context.start_task(host.run(done))
        await done.wait()
        serving.cancel()
    return host.exit_code


def _continue_alone(journal: int, reason: str, arguments: list[str]) -> int:
    """Serve the session of a host in this process, because there is no broker any more."""
    options = CommandOptions(**(parse_flags(arguments) or {}))  # type: ignore[arg-type]  # checked by the parser
    try:
        redactor, log, workspace = prepare(options)
        log.info("broker.none", reason=reason, note="this session is continued in its own process")
        log_warnings(log, workspace)
        continued = Journal(journal)
    except SwitchboardError as problem:
        os.write(2, f"switchboard: {as_text(problem.failure)}\n".encode())
        return 2
    except (OSError, JournalError) as problem:
        os.write(2, f"switchboard: The session cannot be continued: {problem}\n".encode())
        return 2
    return run(lambda: serve_continued(workspace, log, redactor, options, continued))


if __name__ == "__main__":
    sys.exit(_continue_alone(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
