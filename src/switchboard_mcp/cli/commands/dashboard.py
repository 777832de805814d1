"""`switchboard dashboard`: prints a link that logs one browser in to the dashboard of the server that runs here."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.cli.commands.top import find_server, no_server
from switchboard_mcp.cli.console import format_duration
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.parser import Command
from switchboard_mcp.server.http import server_info
from switchboard_mcp.server.http.sockets import format_address


class NewLink(Struct, frozen=True, rename="camel"):
    """Answer of the server: the code of the link."""

    code: str
    expires_in_seconds: int


def run(invocation: Invocation) -> int:
    """Request a link from the running server and print it."""
    info, token = find_server(workspace_folder(invocation.options))
    link = server_info.request(info, "/api/link", NewLink, token, body=b"{}")
    if isinstance(link, str):
        raise no_server(link)
    # The code is in the fragment, which browsers do not send, so it is in no log of a server or proxy.
    url = f"http://{format_address(info.host, info.port)}/#{link.code}"
    out = invocation.console.out
    if invocation.as_json:
        out.json({"url": url, "expiresInSeconds": link.expires_in_seconds})
    else:
        out.stream.write(url + "\n")  # in one piece, however narrow the terminal
        if out.is_terminal:
            invocation.console.err.line(
                f"Works once, within {format_duration(link.expires_in_seconds)}.", "dim"
            )
    return 0


COMMAND = Command(
    "dashboard [OPTIONS]",
    "Print a link that logs one browser in to the dashboard of the HTTP server that runs here. It works once, within\n"
    "an hour.",
    run=run,
)
