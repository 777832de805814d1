"""Declarations of commands and their arguments, and the parser that reads them.

Wraps argparse: short constructors for arguments, the options common to all commands, and usage errors in our own
format. It does not know which commands exist.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.observability.log import LEVELS
from switchboard_mcp.suites.fuzzy import nearest


class Argument(NamedTuple):
    """One argument and its `add_argument` settings. A flag may have a short name after the long one: `--follow -f`."""

    name: str
    settings: dict[str, Any]


def positional(name: str, help: str, **settings: Any) -> Argument:
    """Declare a positional argument."""
    return Argument(name, {"metavar": name.upper(), "help": help} | settings)


def flag(name: str, help: str) -> Argument:
    """Declare a flag without a value."""
    return Argument(name, {"action": "store_true", "help": help})


def number(text: str) -> float:
    """Parse a number; NaN is not one."""
    parsed = float(text)
    if parsed != parsed:
        raise ValueError
    return parsed


def check_timeout(command: str, timeout_s: float | None) -> None:
    """Raise a usage error if a timeout in seconds is not positive and finite."""
    if timeout_s is not None and not 0 < timeout_s < inf:
        raise usage_error(
            f"{command}: --timeout must be more than 0 seconds.", "Omit it, or use for example 30."
        )


def option(name: str, metavar: str, help: str, default: Any = "", **settings: Any) -> Argument:
    """Declare an option with a value, which has the type of its default."""
    kind = {} if default is None else {"type": number if isinstance(default, float) else type(default)}
    return Argument(name, {"metavar": metavar, "help": help, "default": default} | kind | settings)


def choice(name: str, choices: Sequence[str], help: str, default: str = "") -> Argument:
    """Declare an option with one of a few values."""
    return Argument(name, {"choices": tuple(choices), "help": help, "default": default})


def repeatable(name: str, metavar: str, help: str, **settings: Any) -> Argument:
    """Declare an option that may be repeated."""
    return Argument(name, {"action": "append", "metavar": metavar, "help": help, "default": []} | settings)


COMMON = (
    flag("--json", "print JSON"),
    option("--workspace", "DIR", "folder with config and children (default: here)"),
    option("--config", "FILE", "config file, if not the one in the workspace", default=None),
    option("--profile", "NAME", "see what clients of this profile see"),
    choice("--log-level", tuple(LEVELS), "what to log to stderr"),
    choice("--log-format", ("text", "json"), "format of the log"),
)


class Command(Struct, frozen=True):
    """The declaration of one command."""

    usage: str
    summary: str
    run: Callable[[Invocation], int]
    arguments: Sequence[Argument] = ()
    epilog: str = ""


class Parser(argparse.ArgumentParser):
    """Parses the arguments of one command, the common options included."""

    def __init__(self, name: str, command: Command) -> None:
        self.flags: list[str] = []
        self.command = command
        self._title = f"switchboard {name}"
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

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """The declared arguments except `--help`, in order."""
        return [action for action in self._actions if not isinstance(action, argparse._HelpAction)]

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Parse the arguments; options and positional arguments may come in any order."""
        args, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            near = nearest(unknown[0], self.flags) if unknown[0].startswith("-") else []
            hint = f"; did you mean {near[0]}?" if near else ""
            if " -- CMD" in self.command.usage and not unknown[0].startswith("-"):
                hint = "; write -- before the command"
            self.error(f"unknown argument {unknown[0]}{hint}")
        return args

    def error(self, message: str) -> NoReturn:
        """Raise a usage error instead of exiting, so all errors are printed in one place."""
        _, required, names = message.partition("the following arguments are required: ")
        if required:
            # argparse also names arguments that may be absent: those take any number of words.
            optional = {str(action.metavar or action.dest) for action in self.actions if action.nargs == "*"}
            missing = [name for name in names.split(", ") if name not in optional]
            message = f"{' and '.join(missing)} missing"
        text = f"{self._title.removeprefix('switchboard ')}: {message}"
        raise usage_error(text, f"{self.format_usage()}Run `{self._title} --help` for details.")
