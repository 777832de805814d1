"""How a command is written down, and how its arguments are read.

Owns the words for arguments, the common options, and refusing in our words. It does not know which commands there are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from switchboard_mcp.cli.invocation import usage_error
from switchboard_mcp.observability.log import LEVELS
from switchboard_mcp.suites.fuzzy import nearest


class Argument(NamedTuple):
    """One argument, as `argparse` takes it; a flag may have a second, short name behind the first."""

    name: str
    settings: dict[str, Any]


def positional(name: str, help: str, **settings: Any) -> Argument:
    """A word by its place."""
    return Argument(name, {"metavar": name.upper(), "help": help} | settings)


def flag(flag: str, help: str) -> Argument:
    """A flag that is there or not."""
    return Argument(flag, {"action": "store_true", "help": help})


def number(written: str) -> float:
    """A number, which NaN is not, whatever it is called."""
    found = float(written)
    if found != found:
        raise ValueError
    return found


def option(flag: str, metavar: str, help: str, default: Any = "", **settings: Any) -> Argument:
    """A flag with a value, which is of the kind of its default."""
    kind = {} if default is None else {"type": number if isinstance(default, float) else type(default)}
    return Argument(flag, {"metavar": metavar, "help": help, "default": default} | kind | settings)


def choice(flag: str, choices: Sequence[str], help: str, default: str = "") -> Argument:
    """A flag with one of a few values."""
    return Argument(flag, {"choices": tuple(choices), "help": help, "default": default})


def repeatable(flag: str, metavar: str, help: str, **settings: Any) -> Argument:
    """A flag that may be given more than once."""
    return Argument(flag, {"action": "append", "metavar": metavar, "help": help, "default": []} | settings)


COMMON = (
    flag("--json", "answer for programs"),
    option("--workspace", "DIR", "folder with config and children (default: here)"),
    option("--config", "FILE", "config file, if not the one in the workspace", default=None),
    option("--profile", "NAME", "see what clients of this profile see"),
    choice("--log-level", tuple(LEVELS), "what to log to stderr"),
    choice("--log-format", ("text", "json"), "how to log it"),
)


class Command(Struct, frozen=True):
    """One command: what it is called and does, and where it is, so that only the one that is run is loaded."""

    usage: str
    summary: str
    run: str = ""
    arguments: Sequence[Argument] = ()
    epilog: str = ""


class Parser(argparse.ArgumentParser):
    """Reads the arguments of one command, which takes the common options too."""

    def __init__(self, name: str, command: Command) -> None:
        self.flags: list[str] = []
        self._title = f"switchboard {name}"
        self._usage = command.usage
        super().__init__(
            prog=self._title,
            usage=f"switchboard {command.usage}",
            description=command.summary,
            epilog=command.epilog or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for argument in (*command.arguments, *COMMON):
            names = argument.name.split()
            if argument.name.startswith("-"):
                self.flags += names
            self.add_argument(*names, **argument.settings)

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """The arguments, in whatever order options and words come."""
        args, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            near = nearest(unknown[0], self.flags) if unknown[0].startswith("-") else []
            hint = f"; did you mean {near[0]}?" if near else ""
            if " -- CMD" in self._usage and not unknown[0].startswith("-"):
                hint = "; write -- before the command"
            self.error(f"unknown argument {unknown[0]}{hint}")
        return args

    def error(self, message: str) -> NoReturn:
        """Raise, so that one place writes all errors."""
        _, required, names = message.partition("the following arguments are required: ")
        if required:
            message = f"{names.removesuffix(', ARGS').replace(', ', ' and ')} missing"
        text = f"{self._title.removeprefix('switchboard ')}: {message}"
        raise usage_error(text, f"{self.format_usage()}`{self._title} --help` tells more.")
