"""`switchboard call`: call one subtool from a shell."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec
from msgspec import Raw

from switchboard_mcp.app import Switchboard
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.console import Screen, Styled, one_line, truncate
from switchboard_mcp.cli.invocation import Invocation, find_suite, open_switchboard, read_line, usage_failure
from switchboard_mcp.cli.live import LiveDisplay
from switchboard_mcp.cli.local_client import LocalClient, LogMessage, Progress, ToolResult, connected
from switchboard_mcp.cli.parser import Command, option, positional
from switchboard_mcp.cli.result_view import show_result
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.message_meta import LEVELS

ARGUMENT_HINT = "Write them as one JSON object, as key=value, or `-` to read JSON from stdin."
# Lower levels are meant for the child's developers.
LOWEST_LOG_LEVEL = LEVELS.index("info")

_decode_any = msgspec.json.Decoder().decode


def run(invocation: Invocation) -> int:
    """Call the subtool and show its result."""
    args = read_arguments(invocation.args.args, sys.stdin.buffer.read)
    if isinstance(args, Failure):
        raise SwitchboardError(args)
    result = run_loop(lambda: gather(invocation, args))
    return show_result(result, invocation.args.subtool, invocation)


COMMAND = Command(
    "call SUITE SUBTOOL [ARGS …] [OPTIONS]",
    "Call a subtool and print its result. Exit code 1 if the subtool fails.",
    run=run,
    arguments=[
        positional("suite", "name of a suite, or of its child"),
        positional("subtool", "name of a subtool"),
        positional("args", "a JSON object, key=value …, or - for JSON on stdin", nargs="*"),
        option("--output", "DIR", "save images, audio and resources to this folder"),
    ],
    epilog=(
        "A value that is JSON is taken as JSON, any other as a string: count=3, name=Ada, tags='[\"a\"]'.\n"
        "If the subtool's schema asks for a string, it is a string: zip=10115.\n\n"
        "examples:\n"
        '  switchboard call github create_issue title="It works" labels=\'["demo"]\'\n'
        '  switchboard call github create_issue \'{"title": "It works"}\'\n'
        "  jq … | switchboard call github create_issue - --json"
    ),
)


async def gather(invocation: Invocation, args: dict[str, Raw]) -> ToolResult:
    """Call the subtool as a host would."""
    subtool = invocation.args.subtool
    async with open_switchboard(invocation) as switchboard:
        suite = find_suite(switchboard, invocation.args.suite, invocation.console)
        # A twin suite is called by its own name, so that it refuses the subtools of its twin.
        requested = invocation.args.suite
        name = requested if requested in switchboard.gateway.tools else suite.callable_name
        label = f"{suite.child.name} {subtool}"
        async with connected_at_terminal(invocation, switchboard, label) as (host, status):
            if ambiguous := ambiguous_values(invocation.args.args):
                introspection = await host.call(name, {"action": "introspect", "subtool": subtool})
                args.update(values_typed_string(ambiguous, introspection))
            arguments = {"action": "call", "subtool": subtool, "args": args}
            return await host.call(name, arguments, status.update)


@asynccontextmanager
async def connected_at_terminal(
    invocation: Invocation, switchboard: Switchboard, label: str
) -> AsyncIterator[tuple[LocalClient, CallProgress]]:
    """Connect as a host that shows progress and logs at the terminal, and asks there for approvals."""
    status, screen = CallProgress(label), invocation.console.err
    with LiveDisplay(screen, status.frame, enabled=invocation.may_draw) as live:
        async with connected(
            switchboard.gateway,
            lambda message: show_log(message, screen, live),
            TerminalApprover(screen, live, present=not invocation.as_json),
        ) as host:
            yield host, status


def read_arguments(words: Iterable[str], read_stdin: Callable[[], bytes]) -> dict[str, Raw] | Failure:
    """Parse the subtool's arguments. A value that is JSON is taken as JSON, any other as a string."""
    args: dict[str, Raw] = {}
    for word in words:
        data = os.fsencode(word)  # the bytes the shell passed, whatever the locale decoded them to
        if word == "-":
            members = _read_object(read_stdin(), "stdin")
        elif data.lstrip().startswith(b"{"):
            members = _read_object(data, f"'{truncate(one_line(word), 60)}'")
        else:
            members = _read_pair(data)
        if isinstance(members, Failure):
            return members
        for name in members:
            if name in args:
                return usage_failure(
                    f"The argument '{name}' is given twice.", "Give it once; a list is key='[1,2]'."
                )
        args.update(members)
    return args


def _read_object(data: bytes, what: str) -> dict[str, Raw] | Failure:
    try:
        return decode_members(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        reason = str(problem).removeprefix("JSON is malformed: ")
        return usage_failure(f"{what} is not a JSON object: {reason}.", ARGUMENT_HINT)


def _read_pair(data: bytes) -> dict[str, Raw] | Failure:
    try:
        name, equals, value = data.decode().partition("=")
    except UnicodeDecodeError:
        return usage_failure(f"{data!r} is not UTF-8.", "Encode it, for example as base64.")
    if not equals or not name:
        return usage_failure(f"'{truncate(one_line(name), 60)}' is not an argument.", ARGUMENT_HINT)
    try:
        _decode_any(value.encode())
    except (msgspec.DecodeError, RecursionError):
        return {name: Raw(msgspec.json.encode(value))}
    return {name: Raw(value.encode())}


def ambiguous_values(words: Iterable[str]) -> dict[str, str]:
    """Return the key=value arguments that JSON reads as something other than a string: `zip=10115`, `done=true`."""
    doubtful = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and not word.lstrip().startswith("{"):
            try:
                if not isinstance(_decode_any(os.fsencode(value)), str | None):
                    doubtful[name] = value
            except (msgspec.DecodeError, RecursionError):
                continue
    return doubtful


def values_typed_string(ambiguous: dict[str, str], introspection: ToolResult) -> dict[str, Raw]:
    """Return the ambiguous values that the subtool's schema types as string, from an introspect answer."""
    try:
        answer = _decode_any(str(introspection.content[0]["text"]))
        properties = answer["tools"][0]["inputSchema"]["properties"]
        return {
            name: Raw(msgspec.json.encode(text))
            for name, text in ambiguous.items()
            if _is_text(properties.get(name))
        }
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
        return {}  # Without a schema, JSON decides.


def _is_text(schema: object) -> bool:
    if not isinstance(schema, dict):
        return False
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list):
        types = [option for option in options if option != {"type": "null"}]
        return bool(types) and all(map(_is_text, types))
    return schema.get("type") in ("string", ["string"], ["string", "null"])


class TerminalApprover:
    """Asks at the terminal before a call that a rule of the gate asks about."""

    def __init__(self, screen: Screen, live: LiveDisplay, *, present: bool) -> None:
        self._screen = screen
        self._live = live
        self._present = present

    @property
    def is_available(self) -> bool:
        """True if a person can answer."""
        return self._present and sys.stdin.isatty() and self._screen.is_terminal

    def ask(self, question: str, on_answer: Callable[[bool | None], None]) -> None:
        """Show the question, and wait for the answer without blocking the loop."""
        self._live.paused = True
        self._live.erase()
        for line in question.splitlines():
            self._screen.line(line)
        self._screen.stream.write("Allow it? [y/N] ")
        self._screen.stream.flush()

        def take(line: str) -> None:
            self._live.paused = False
            on_answer(line.strip().lower() in ("y", "yes") if line else None)

        read_line(take)


class CallProgress:
    """The status line shown while the subtool runs."""

    def __init__(self, what: str) -> None:
        self._what = one_line(what)
        self._began = time.monotonic()
        self._progress = Progress()

    def update(self, progress: Progress) -> None:
        """Record progress reported by the child, or by the gateway while it starts the child."""
        self._progress = progress

    def frame(self, spin: str) -> list[Styled]:
        """Return the status line."""
        parts = [f"{spin} {self._what}"]
        if self._progress.total:
            parts.append(f"{self._progress.progress:g}/{self._progress.total:g}")
        if self._progress.message:
            parts.append(one_line(self._progress.message))
        parts.append(f"{time.monotonic() - self._began:.0f} s")
        return [Styled(" · ".join(parts))]


def show_log(message: LogMessage, screen: Screen, live: LiveDisplay) -> None:
    """Show a log message of the child on a terminal; a script gets the result alone."""
    if not screen.is_terminal or (message.level in LEVELS and LEVELS.index(message.level) < LOWEST_LOG_LEVEL):
        return
    text = message.data if isinstance(message.data, str) else msgspec.json.encode(message.data).decode()
    live.erase()
    screen.line(f"{one_line(message.logger)} {one_line(message.level)}: {one_line(text)}", "dim")
