"""`switchboard dashboard` opens the web page of the running server, or of the broker."""

from __future__ import annotations

import os
import webbrowser

import msgspec
from msgspec import Struct

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.broker.broker_client import ask_broker, find_brokers
from switchboard_mcp.cli.commands.broker import read_brokers
from switchboard_mcp.cli.commands.login import has_desktop
from switchboard_mcp.cli.console import format_duration, plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, flag
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.server.http import auth, server_info
from switchboard_mcp.server.http.server_info import ServerInfo
from switchboard_mcp.server.http.sockets import format_address
from switchboard_mcp.system.installation import install_hint
from switchboard_mcp.system.processes import other_people_run_programs

FOLDER = ".switchboard"


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


def run(invocation: Invocation) -> int:
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


COMMAND = Command(
    "dashboard [OPTIONS]",
    "Open the dashboard of the HTTP server that runs here in your browser, logged in; without one, that of the\n"
    "broker, which then listens on a port of this machine for as long as it is used. Without a desktop, piped, with\n"
    "--print, or while other people use this machine, print the link instead: it logs one browser in, once, within\n"
    "an hour.",
    run=run,
    arguments=[
        flag("--print", "print the link, open nothing"),
        flag("--broker", "the dashboard of the broker, even if an HTTP server runs here"),
    ],
)
