"""`switchboard top` shows the running server live, or piped as one plain table; `dashboard` opens its web page.

Reads the same API and events as the dashboard, or asks the broker. `top_view` renders the lines.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

import msgspec
from msgspec import Struct

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.broker.broker_client import ask_broker, broker_pid, find_brokers
from switchboard_mcp.cli.commands.broker import read_brokers, report_members, watch_arguments
from switchboard_mcp.cli.commands.login import has_desktop
from switchboard_mcp.cli.commands.status import show_broker, show_stdio_servers
from switchboard_mcp.cli.console import Screen, format_duration, plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, flag
from switchboard_mcp.cli.top_view import SORTS, UNHEALTHY, Row, TopState, draw
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.server import stdio_info
from switchboard_mcp.server.broker_report import BrokerReport
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.server.http.server_info import ServerInfo
from switchboard_mcp.server.http.sockets import format_address
from switchboard_mcp.server.stdio_info import StdioInfo
from switchboard_mcp.system.installation import install_hint
from switchboard_mcp.system.processes import other_people_run_programs

FOLDER = ".switchboard"
# Uptimes advance even if nothing happens.
REDRAW_S = 1.0
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, REST = "\x1b[H", "\x1b[J"
KEYS = {"\x1b[A": "k", "\x1b[B": "j", "\x1b[5~": "b", "\x1b[6~": " ", "\x03": "q", "\x1b": "q"}


class ServerFeed:
    """The state of the server: fetched once, then updated from its events in a separate thread."""

    def __init__(self, workspace: str, info: ServerInfo, token: str) -> None:
        self._workspace = workspace
        self._info = info
        self._token = token
        self._stream: HTTPConnection | None = None
        self.changed = threading.Event()
        self.ended = ""
        self.state = TopState()

    def fetch(self) -> None:
        """Fetch the whole state."""
        about = self._get("/api/overview")
        rows = self._get("/api/children")["children"]
        calls = self._get("/api/calls")["calls"]
        history = self._get("/api/history")["points"]
        url = f"http://{self._info.host}:{self._info.port}"
        self.state = TopState(url, about, {row["id"]: row for row in rows}, calls, history)

    def refresh(self) -> None:
        """Look for servers that hosts have started."""
        self.state.stdio = stdio_info.read_all(self._workspace, os.environ)

    def follow(self) -> None:
        """Start listening to events until `close`."""
        threading.Thread(target=self._listen, name="top", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        stream = self._stream
        if stream is not None and stream.sock is not None:
            with suppress(OSError):
                stream.sock.close()

    def _listen(self) -> None:
        self._stream = stream = HTTPConnection(self._info.host, self._info.port, timeout=60)
        try:
            stream.request("GET", "/events", headers={"Authorization": f"Bearer {self._token}"})
            response = stream.getresponse()
            name = ""
            while line := response.readline():
                key, _, value = line.decode("utf-8", "replace").rstrip("\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    self.state.apply(name, msgspec.json.decode(value))
                    self.changed.set()
        except (OSError, HTTPException, ValueError, AttributeError):
            pass  # the server is gone, or the feed was closed
        self.ended = "The server is gone."
        self.changed.set()

    def _get(self, path: str) -> dict[str, Any]:
        answer = server_info.request(self._info, path, dict[str, Any], self._token)
        if isinstance(answer, str):
            raise no_server(answer)
        return answer


class StdioFeed:
    """The brokers of the workspace, and the servers that hosts have started, if there is no HTTP server.

    Brokers are asked again for each redraw. They keep a log of calls while they are asked.
    """

    def __init__(self, workspace: str, config: str | None) -> None:
        self._workspace = workspace
        self._config = config
        self._last_call: dict[int, int] = {}  # by broker
        self.changed = threading.Event()
        self.ended = ""
        self.state = TopState()
        self.brokers: list[BrokerReport] = []

    def refresh(self) -> None:
        """Ask the brokers, and look for servers that hosts have started."""
        paths = find_brokers(self._workspace, self._config, os.environ)
        after = [watch_arguments(self._last_call.get(broker_pid(path), 0)) for path in paths]
        answers = [read_brokers([path], words)[0] for path, words in zip(paths, after, strict=True)]
        self.brokers = [broker.report for brokers in answers for broker in brokers]
        calls: list[Row] = []
        for report in self.brokers:
            new = report.watched.calls if report.watched is not None else []
            if new:
                self._last_call[report.pid] = new[-1].seq
            calls += (msgspec.to_builtins(call) for call in new)
        own = {report.pid for report in self.brokers}
        infos = stdio_info.read_all(self._workspace, os.environ)
        self.state.set_brokers(self.brokers, calls, [info for info in infos if info.broker not in own])

    def follow(self) -> None:
        """Do nothing: there are no events."""

    def close(self) -> None:
        """Do nothing: there are no events."""


def run(invocation: Invocation) -> int:
    """Find the server; show it once, or live until q is pressed."""
    out = invocation.console.out
    folder = workspace_folder(invocation.options)
    started = stdio_info.read_all(folder, os.environ)
    live = out.is_terminal and sys.stdin.isatty()
    try:
        feed = ServerFeed(folder, *find_server(folder))
    except SwitchboardError:
        stdio = StdioFeed(folder, invocation.options.config)
        stdio.refresh()
        if not (stdio.brokers or started) or (invocation.as_json and not stdio.brokers):
            raise nothing_runs(folder) from None
        return _show_stdio(stdio, started, invocation, live=live)
    feed.fetch()
    rows = feed.state.rows.values()
    if invocation.as_json:
        out.json(
            {
                "server": feed.state.about,
                "children": list(rows),
                "history": feed.state.history,
                "stdioServers": started,
            }
        )
    elif live:
        watch(feed, out)
        return 0
    else:
        for line in draw(feed.state, time.time()):
            out.line(line)
        show_stdio_servers(started, out)
    return 1 if any(row.get("health") in UNHEALTHY for row in rows) else 0


def _show_stdio(feed: StdioFeed, started: list[StdioInfo], invocation: Invocation, *, live: bool) -> int:
    """Show the brokers and the servers that hosts have started: once, or live."""
    out = invocation.console.out
    if invocation.as_json:
        reports = [report_members(report) for report in feed.brokers]
        out.json({"server": None, "brokers": reports, "stdioServers": started})
    elif live:
        watch(feed, out)
        return 0
    elif not feed.brokers:
        out.line("No HTTP server runs here; these servers were started by hosts.", "dim")
        show_stdio_servers(started, out)
    else:
        for number, report in enumerate(feed.brokers):
            if number:
                out.line()
            show_broker(report, out, with_children=True)
        show_stdio_servers(list(feed.state.stdio), out)
    return 1 if any(row.get("health") in UNHEALTHY for row in feed.state.rows.values()) else 0


COMMAND = Command(
    "top [OPTIONS]",
    "Watch the HTTP server or the broker that runs here: the health of its children, their calls and latency, the\n"
    "tokens they save, its sessions, and the latest calls. Keys: s sorts, p pauses, arrows scroll, q quits. Piped, or\n"
    "with --json, it shows everything once; exit code 1 if calls to a child are refused. Servers that hosts have\n"
    "started here over stdio are shown too. A broker records calls from when it is first watched.",
    run=run,
)


def watch(feed: ServerFeed | StdioFeed, out: Screen) -> None:
    """Redraw until q is pressed."""
    sort, first, is_paused = 0, 0, False
    feed.follow()
    with _full_screen(out):
        while not feed.ended:
            size = out.size() or os.terminal_size((80, 24))
            if not is_paused:
                feed.refresh()
                lines = draw(
                    feed.state, time.time(), size=size, paint=out.paint, sort=SORTS[sort], first=first
                )
                shown = "\x1b[K\r\n".join(map(out.render, lines))
                out.stream.write_sequence(HOME + shown + "\x1b[K" + REST)
                out.stream.flush()
            key = _read_key(feed)
            if key == "q":
                break
            page = max(1, size.lines - 8)
            most = max(0, len(feed.state.rows) - 1)
            step = {"j": 1, "k": -1, " ": page, "b": -page}.get(key, 0)
            first = min(most, max(0, first + step))
            sort = (sort + (key == "s")) % len(SORTS)
            is_paused = is_paused != (key == "p")
    feed.close()
    if feed.ended:
        out.line(feed.ended)


def _read_key(feed: ServerFeed | StdioFeed) -> str:
    """Return a key pressed before the next redraw is due; empty if there is none."""
    until = time.monotonic() + REDRAW_S
    while (left := until - time.monotonic()) > 0:
        # Poll in short steps, so changes are drawn promptly.
        ready, _, _ = select.select([0], [], [], min(left, 0.1))
        if ready:
            pressed = os.read(0, 16).decode("utf-8", "replace")
            return KEYS.get(pressed, pressed[:1] or "q")
        if feed.changed.is_set():
            feed.changed.clear()
            return ""
    return ""


@contextmanager
def _full_screen(out: Screen) -> Iterator[None]:
    """Use the alternate screen with unbuffered keys; restore the terminal in any case."""
    before = termios.tcgetattr(0)

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    ended = signal.signal(signal.SIGTERM, end)
    try:
        tty.setcbreak(0)
        out.stream.write_sequence(ENTER)
        yield
    finally:
        out.stream.write_sequence(LEAVE)
        out.stream.flush()
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, ended)


def find_server(workspace: str) -> tuple[ServerInfo, str]:
    """Return the server of a workspace and its token."""
    folder = os.path.join(workspace, FOLDER)
    info = server_info.read(folder)
    if info is None or not server_info.is_alive(info):
        raise no_server(f"no Switchboard serves {workspace} over HTTP")
    try:
        return info, auth.read_token(folder)
    except (OSError, UnicodeDecodeError) as problem:
        raise no_server(f"its token cannot be read: {problem}") from None


def no_server(why: str) -> SwitchboardError:
    """Return the refusal of a command that needs a running HTTP server."""
    hint = "Start one with `switchboard serve --http`; `switchboard status` shows what is configured without one."
    return usage_error(f"There is no HTTP server here: {why}.", hint)


def nothing_runs(workspace: str) -> SwitchboardError:
    """Return the refusal of a command that needs an HTTP server or a broker, if there is neither."""
    hint = (
        "Start a session in a host, or a server with `switchboard serve --http`; `switchboard status` shows what is "
        "configured without them."
    )
    return usage_error(f"Neither an HTTP server nor a broker runs for {workspace}.", hint)


class DashboardLink(Struct, frozen=True, rename="camel"):
    """A link that logs one browser in."""

    url: str
    expires_in_seconds: int


class NewLink(Struct, frozen=True, rename="camel"):
    """Answer of the server: the code of the link."""

    code: str
    expires_in_seconds: int


def run_dashboard(invocation: Invocation) -> int:
    """Request a link from the running server; open it in a browser, or print it if there is none."""
    link = _find_link(invocation)
    url, out = link.url, invocation.console.out
    if invocation.as_json:
        out.json(link)
    elif out.is_terminal and not invocation.args.print and _may_open() and webbrowser.open(url):
        out.line(
            "Opened the dashboard in your browser. `switchboard dashboard --print` prints the link instead."
        )
    else:
        out.stream.write(url + "\n")  # in one piece, however narrow the terminal
        if out.is_terminal:
            invocation.console.err.line(
                f"Works once, within {format_duration(link.expires_in_seconds)}.", "dim"
            )
    return 0


def _find_link(invocation: Invocation) -> DashboardLink:
    """Return a link to the dashboard of the HTTP server that runs here; without one, of the broker."""
    folder = workspace_folder(invocation.options)
    if not invocation.args.broker:
        try:
            info, token = find_server(folder)
        except SwitchboardError:
            pass
        else:
            link = server_info.request(info, "/api/link", NewLink, token, body=b"{}")
            if isinstance(link, str):
                raise no_server(link)
            # The code is in the fragment, which browsers do not send, so it is in no log of a server or proxy.
            url = f"http://{format_address(info.host, info.port)}/#{link.code}"
            return DashboardLink(url, link.expires_in_seconds)
    brokers, _ = read_brokers(find_brokers(folder, invocation.options.config, os.environ))
    if not brokers:
        raise nothing_runs(folder)
    # Sessions with another environment have another broker: take that with the most sessions.
    busiest = max(brokers, key=lambda broker: len(broker.report.sessions))
    if len(brokers) > 1 and not invocation.as_json:
        shown = f"process {busiest.report.pid}, {plural(len(busiest.report.sessions), 'session')}"
        invocation.console.err.line(f"{len(brokers)} brokers run here; this is the busiest: {shown}.", "dim")
    answer = ask_broker(busiest.path, "dashboard") or ""
    try:
        return msgspec.json.decode(answer, type=DashboardLink)
    except msgspec.MsgspecError:
        raise usage_error(
            f"The broker does not show its dashboard: {answer.removeprefix('no ') or 'it has ended'}.",
            install_hint("http") if "extra" in answer else "Try again.",
        ) from None


def _may_open() -> bool:
    """Return True if there is a browser to open, and nobody else could read the link in the list of processes."""
    return has_desktop() and not other_people_run_programs()


DASHBOARD = Command(
    "dashboard [OPTIONS]",
    "Open the dashboard of the HTTP server that runs here in your browser, logged in; without one, that of the\n"
    "broker, which then listens on a port of this machine for as long as it is used. Without a desktop, piped, with\n"
    "--print, or while other people use this machine, print the link instead: it logs one browser in, once, within\n"
    "an hour.",
    run=run_dashboard,
    arguments=[
        flag("--print", "print the link, open nothing"),
        flag("--broker", "the dashboard of the broker, even if an HTTP server runs here"),
    ],
)
