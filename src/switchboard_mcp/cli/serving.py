"""Reads the arguments of plain serving by hand: an argument parser costs more than all of it."""

from __future__ import annotations

from ..app import Options

FLAGS = {"--workspace": "workspace", "--config": "config", "--log-level": "log_level", "--log-format": "log_style"}


def parse(arguments: list[str]) -> Options | None:
    """The options where the arguments ask for nothing but serving over stdio; otherwise None."""
    rest = arguments[1:] if arguments[:1] == ["serve"] else arguments
    given: dict[str, str] = {}
    while rest:
        flag, equals, value = rest[0].partition("=")
        taken = 1 if equals else 2
        if flag not in FLAGS or len(rest) < taken:
            return None
        given[FLAGS[flag]] = value if equals else rest[1]
        rest = rest[taken:]
    return Options(**given)
