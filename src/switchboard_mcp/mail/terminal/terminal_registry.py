"""Terminals that other agents may type into: `bridge.json`, name locks, control sockets and logs.

    bridge.json                 the terminals, their control sockets, and whether they accept `execute`
    terminals/<name>.lock       held by the terminal's process, and released when it ends
    terminals/<name>.sock       control socket: a line of JSON in, a line of JSON out; for the owner only
    terminals/<name>.log        what was typed or refused, one line of JSON each

The control socket never types anything: it reports the status, makes the terminal check its inbox, and attaches another
agent of the workspace to the terminal, whose `execute` messages it then types by the same rules. Also contains the
delivery rule for `execute` messages; `terminal_mail` types them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.config.agent_names import OVERSEER, is_agent_name
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.mail.messages import DeliveryRule, MailMessage, SharedState
from switchboard_mcp.mail.personas import read_agent
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.system.processes import is_running, list_ancestors

FILE = "bridge.json"
FOLDER = "terminals"
MAX_BYTES = 1_048_576
MAX_LOG_BYTES = 4 * 1_048_576
MAX_LINE_BYTES = 4_096
# A client that connects and sends nothing must not block the socket.
READ_TIMEOUT_S = 5.0


class TerminalEntry(Struct, rename="camel", kw_only=True):
    """A terminal's entry in `bridge.json`."""

    pid: int
    socket: str
    allow_execute: bool = False
    program: str = ""
    purpose: str = ""
    started_at: str = ""


class TerminalRegistry(Struct, kw_only=True):
    """The contents of `bridge.json`."""

    version: int = 1
    terminals: dict[str, TerminalEntry] = {}


def read(folder: str) -> dict[str, TerminalEntry]:
    """Return the running terminals by name. `folder` is `.switchboard`."""
    try:
        root = file_operations.open_folder(folder)
    except (OSError, SwitchboardError):
        return {}
    try:
        return _read(root)
    finally:
        os.close(root)


def _read(root: int) -> dict[str, TerminalEntry]:
    content = file_operations.read(root, FILE, MAX_BYTES)
    if isinstance(content, file_operations.RejectedFile):
        return {}
    try:
        terminals = msgspec.json.decode(content.data, type=TerminalRegistry).terminals
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {name: entry for name, entry in terminals.items() if is_agent_name(name) and is_running(entry.pid)}


def register(folder: str, name: str, entry: TerminalEntry | None) -> None:
    """Add a terminal to the file, or remove it; entries of ended processes are removed too. Blocking."""
    root = file_operations.open_folder(folder)
    try:
        file_operations.make_folder("locks", root)
        locks = file_operations.open_folder("locks", root)
        try:
            with file_operations.lock(locks, "bridge", f"{folder}/locks"):
                terminals = _read(root)
                terminals.pop(name, None)
                if entry is not None:
                    terminals[name] = entry
                _store(root, msgspec.json.encode(TerminalRegistry(terminals=dict(sorted(terminals.items())))))
        finally:
            os.close(locks)
    finally:
        os.close(root)


def _store(root: int, data: bytes) -> None:
    new = f".{FILE}.{os.urandom(6).hex()}"
    descriptor = file_operations.create(root, new, msgspec.json.format(data, indent=2) + b"\n")
    os.close(descriptor)
    file_operations.replace(root, new, root, FILE)


class TerminalLease:
    """The name and control socket of one terminal, held until closed."""

    def __init__(self, folder: str, name: str) -> None:
        """Lock the name. Raises `mail_name_taken` if another terminal holds it. `folder` is `.switchboard`."""
        self._folder = file_operations.make_and_open_folder(folder, FOLDER)
        self.name = name
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(f"{name}.lock", flags, 0o600, dir_fd=self._folder)
        if not file_operations.try_lock(self._lock):
            self.close()
            message = f"Terminal '{name}' is already running."
            raise refused("mail_name_taken", message)

    @property
    def address(self) -> str:
        """Return the path of the control socket below `.switchboard/`."""
        return f"{FOLDER}/{self.name}.sock"

    def open_control_socket(self) -> socket.socket:
        """Return a listening socket that only the owner can use."""
        name = f"{self.name}.sock"
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            _with_short_path(self._folder, name, listener.bind)
        finally:
            os.umask(before)
        listener.listen(8)
        return listener

    def log(self, line: dict[str, Any]) -> None:
        """Append a line to the log. A large log is rotated, keeping one previous file."""
        name = f"{self.name}.log"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self._folder)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                raise OSError(f"{FOLDER}/{name} is not a regular file of this user")
            os.write(descriptor, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(descriptor)
        if info.st_size > MAX_LOG_BYTES:
            file_operations.replace(self._folder, name, self._folder, f"{self.name}.before.log")

    def close(self) -> None:
        """Release the name and the control socket."""
        if self._folder < 0:
            return
        with suppress(OSError):
            os.unlink(f"{self.name}.sock", dir_fd=self._folder)
        os.close(self._lock)
        os.close(self._folder)
        self._folder = -1


def _with_short_path(folder: int, name: str, use: Callable[[str], None]) -> None:
    """Bind or connect by a short path through the folder's descriptor: socket paths are limited to about 100 bytes."""
    short = f"/proc/self/fd/{folder}"
    if os.path.isdir(short):
        use(f"{short}/{name}")
        return
    previous = os.open(os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchdir(folder)
        use(name)
    finally:
        os.fchdir(previous)
        os.close(previous)


class ControlRequest(Struct):
    """A request to a control socket. `attach` makes the terminal serve another agent too, shown with this styling."""

    ask: Literal["status", "look", "attach"]
    name: str = ""
    styling: dict[str, str] = {}


class ControlReply(Struct, rename="camel", omit_defaults=True):
    """The reply of a control socket."""

    terminal: str = ""
    allow_execute: bool = False
    pid: int = 0
    names: list[str] = []
    """All agents that the terminal serves."""
    error: str = ""


def find(folder: str, pid: int) -> tuple[str, TerminalEntry] | None:
    """Return the running terminal of this process: the terminal itself, or one that the process runs in."""
    terminals = read(folder)
    pids = {entry.pid: name for name, entry in reversed(terminals.items()) if not is_attached(name, entry)}
    for candidate in (pid, *list_ancestors(pid)):
        if candidate in pids:
            return pids[candidate], terminals[pids[candidate]]
    return None


def is_attached(name: str, entry: TerminalEntry) -> bool:
    """Return True if the agent was attached to the terminal of another name."""
    return not entry.socket.endswith(f"/{name}.sock")


def ask(folder: str, name: str, request: ControlRequest) -> ControlReply:
    """Send a request to the control socket of a terminal. Blocking. Raises `mail_not_found` if it does not answer."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(READ_TIMEOUT_S)
        root = file_operations.open_folder(os.path.join(folder, FOLDER))
        try:
            _with_short_path(root, f"{name}.sock", client.connect)
        finally:
            os.close(root)
        client.sendall(msgspec.json.encode(request) + b"\n")
        with client.makefile("rb") as reader:
            return msgspec.json.decode(reader.readline(MAX_LINE_BYTES), type=ControlReply)
    except (OSError, msgspec.DecodeError):
        message = f"Terminal '{name}' does not answer."
        raise refused(
            "mail_not_found", message, hint=f"Start it again: switchboard terminal {name} -- PROGRAM"
        ) from None
    finally:
        client.close()


async def serve(
    control_socket: socket.socket,
    status: Callable[[], ControlReply],
    look: Callable[[], None],
    attach: Callable[[str, dict[str, str]], Coroutine[None, None, None]],
) -> None:
    """Serve the control socket until cancelled."""

    async def respond(line: bytes) -> ControlReply:
        request = _parse_request(line)
        if request is None:
            return ControlReply(
                error='Send {"ask":"status"}, {"ask":"look"} or {"ask":"attach","name":NAME}.'
            )
        if request.ask == "look":
            look()
        elif request.ask == "attach":
            try:
                await attach(request.name, request.styling)
            except SwitchboardError as problem:
                return ControlReply(error=problem.failure.message)
        return status()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                reply = await respond(await reader.readline())
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # The client has disconnected.
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, sock=control_socket, limit=MAX_LINE_BYTES)
    async with server:
        await server.serve_forever()


def _parse_request(line: bytes) -> ControlRequest | None:
    try:
        return msgspec.json.decode(line, type=ControlRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def refusal(
    recipient: str, entry: TerminalEntry | None, *, verified: bool, sender: str, role: str
) -> Failure | None:
    """Return why an `execute` message may not be typed, or None. `entry` is None if no terminal has the name."""
    start = f"Send it as delegate_task, or start it with: switchboard terminal {recipient} --allow-execute -- PROGRAM"
    if entry is None:
        message = f"'{recipient}' is not a running terminal, so nothing can be typed into it."
        return failure("mail_forbidden", message, hint=start)
    if not entry.allow_execute:
        message = (
            f"Terminal '{recipient}' was started without --allow-execute, so nothing can be typed into it."
        )
        return failure("mail_forbidden", message, hint=start)
    return _sender_refusal(recipient, verified=verified, sender=sender, role=role)


def _sender_refusal(recipient: str, *, verified: bool, sender: str, role: str) -> Failure | None:
    if not verified:
        message = (
            f"Only verified senders may type into terminal '{recipient}', and '{sender}' is not verified."
        )
        hint = (
            "Send it with the mail tools, or while no other program is that agent: "
            f"switchboard mail send {recipient} TEXT --action execute --as {sender}"
        )
        return failure("mail_forbidden", message, hint=hint)
    if role != "lead" and sender != OVERSEER:
        message = (
            f"Only leads may type into terminal '{recipient}'; '{sender}' is {role or 'without a role'}."
        )
        hint = f"The lead can make it one: switchboard mail agents role {sender} lead --as LEAD"
        return failure("mail_forbidden", message, hint=hint)
    return None


def delivery_rule(folder: str) -> DeliveryRule:
    """Return the delivery rule for `execute` messages: a verified lead, to a terminal that allows it."""

    def check(message: MailMessage, state: SharedState) -> MailMessage | Failure:
        if message.action != "execute":
            return message
        agents = state.section("agents")
        sender, recipient = read_agent(agents, message.sender), read_agent(agents, message.recipient)
        entry = read(folder).get(message.recipient)
        if entry is not None and is_attached(message.recipient, entry) and not recipient.bridge:
            entry = None  # It has registered as a chat agent since.
        return (
            refusal(
                message.recipient, entry, verified=message.verified, sender=message.sender, role=sender.role
            )
            or message
        )

    return check
