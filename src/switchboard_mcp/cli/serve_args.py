"""Serves over stdio. Parses the arguments by hand: importing an argument parser would cost more than all of it."""

from __future__ import annotations

import sys
from typing import Any

from switchboard_mcp.app import CommandOptions, serve
from switchboard_mcp.errors import SwitchboardError, as_text
from switchboard_mcp.system.terminal_text import write_clean

NO_RELOAD = "--no-reload"
FLAGS = {
    "--workspace": "workspace",
    "--config": "config",
    "--profile": "profile",
    "--log-level": "log_level",
    "--log-format": "log_style",
}
CHOICES = {"log_level": ("debug", "info", "warning", "error"), "log_style": ("text", "json")}


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
    rest = list(arguments)
    if "serve" in rest:
        place = rest.index("serve")
        # After an option that takes a value, it is that value.
        if place == 0 or rest[place - 1] not in FLAGS:
            del rest[place]
    options: dict[str, Any] = {}
    if NO_RELOAD in rest:
        rest.remove(NO_RELOAD)
        options["reload"] = False
    while rest:
        flag, equals, value = rest[0].partition("=")
        taken = 1 if equals else 2
        if flag not in FLAGS or len(rest) < taken:
            return None
        name = FLAGS[flag]
        options[name] = value if equals else rest[1]
        if name in CHOICES and options[name] not in CHOICES[name]:
            return None
        rest = rest[taken:]
    return CommandOptions(**options)
