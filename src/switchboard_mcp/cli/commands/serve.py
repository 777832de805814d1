"""`switchboard serve`: over stdio, over HTTP, or as a dry run.

Hosts start Switchboard without a command or with plain options; `serve_args` reads those without this module.
"""

from __future__ import annotations

from switchboard_mcp.app import CommandOptions, serve
from switchboard_mcp.cli.commands import dry_run
from switchboard_mcp.cli.invocation import SEE_HELP, Invocation, usage_error
from switchboard_mcp.cli.parser import Command, flag, option
from switchboard_mcp.errors import refused
from switchboard_mcp.system.installation import install_hint


def run(invocation: Invocation) -> int:
    """Serve until the host disconnects or the server is stopped."""
    args = invocation.args
    if args.dry_run:
        return dry_run.run(invocation)
    if invocation.as_json:
        raise usage_error("--json needs a command, or --dry-run.", SEE_HELP)
    if args.http is not None:
        return _serve_over_http(invocation.options, args.http)
    return serve(invocation.options)


def _serve_over_http(options: CommandOptions, address: str) -> int:
    try:
        from switchboard_mcp.http_app import serve_over_http  # needs the extra `http`
    except ImportError as problem:
        message = f"Serving over HTTP requires the package '{problem.name}', which is not installed."
        raise refused("http_missing", message, hint=install_hint("http")) from None
    return serve_over_http(options, address)


COMMAND = Command(
    "[serve] [OPTIONS]",
    "Serve over stdio until the host disconnects. This is what a host runs.\n"
    "With --http, serve over HTTP until stopped: Streamable HTTP at /mcp, HTTP+SSE at /sse. The address is in\n"
    ".switchboard/server_info.json, the bearer token of this start in .switchboard/auth_token.",
    run=run,
    arguments=[
        flag("--dry-run", "connect to every child, list its subtools, exit"),
        flag("--no-reload", "apply config changes only at the next start"),
        flag("--alone", "serve this host in its own process, not in the broker that the sessions share"),
        option(
            "--http",
            "[HOST:]PORT",
            "serve over HTTP, for any number of hosts (default: host and port of the config)",
            default=None,
            nargs="?",
            const="",
        ),
    ],
)
