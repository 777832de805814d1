"""Serves over stdio, if the arguments ask for that. Imports no argument parser."""

from __future__ import annotations

import sys
from typing import Any

from switchboard_mcp.app import CommandOptions, serve
from switchboard_mcp.config.serve_flags import parse_flags
from switchboard_mcp.errors import SwitchboardError, as_text
from switchboard_mcp.system.terminal_text import write_clean


def run(arguments: list[str]) -> int | None:
    """Serve over stdio if the arguments ask only for that, and return the exit code; otherwise return None."""
    options = parse(arguments)
    if options is None:
        return None
    try:
        return serve(options)
    except SwitchboardError as problem:
        write_clean(sys.stderr, f"switchboard: {as_text(problem.failure)}\n")
        return 2


def parse(arguments: list[str]) -> CommandOptions | None:
    """Return the options if the arguments ask only for serving over stdio; otherwise None."""
    options: dict[str, Any] | None = parse_flags(arguments)
    return None if options is None else CommandOptions(**options)
