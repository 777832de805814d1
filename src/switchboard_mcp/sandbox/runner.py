"""Runs children in their sandboxes.

Finds what this system offers, makes the plan, starts the process and serves its network.
Loaded with the first child that has a sandbox.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from time import monotonic

import msgspec
from msgspec import Raw, Struct, structs

from switchboard_mcp.config.sandbox import SandboxWords
from switchboard_mcp.errors import Failure, failure, shell_word
from switchboard_mcp.sandbox import installations
from switchboard_mcp.sandbox.denials import (
    MAX_CHARS,
    NETWORK_REFUSALS,
    Denial,
    find_denials,
    host_denial,
    network_denial,
    sentences,
)
from switchboard_mcp.sandbox.egress import Egress
from switchboard_mcp.sandbox.mechanisms import bubblewrap_argv
from switchboard_mcp.sandbox.plan import Launch as Launch
from switchboard_mcp.sandbox.plan import Places, SandboxPlan, make_plan, packages_folder
from switchboard_mcp.sandbox.probing import CONFINE, find_bubblewrap, find_programs, interpreter, tools
from switchboard_mcp.sandbox.promises import Support, inside, mechanism_of, promises, unusable
from switchboard_mcp.sandbox.recorded_plans import wider_paths
from switchboard_mcp.sandbox.refusals import Refusals
from switchboard_mcp.sandbox.workspace_size import too_wide
from switchboard_mcp.transport.process.launcher import (
    REQUEST_TIMEOUT_S,
    ChildProcess,
    Launcher,
    SandboxRequest,
    SpawnError,
    encode_launch,
)
from switchboard_mcp.transport.process.reaper import LATER, children_by_parent

MAX_SOCKETS = 250  # the kernel passes 253 descriptors at once
# A refused host explains an error of a call that ended within this time after it.
RECENT_S = 60.0
MAX_REPORTED = 100  # different refusals of one process that are logged and audited
STDERR_LINES = 10
MAX_OUTPUT = 65_536
PROBE_TIMEOUT_S = 10.0
CHANNEL = 3  # the descriptor of the socket inside bubblewrap, as in `confine`

OnDenial = Callable[[Denial], None]


class RunningSandbox:
    """The sandbox of one running process: its plan, its connections, and what it has refused."""

    def __init__(self, child: str, words: SandboxWords, plan: SandboxPlan, on_denial: OnDenial) -> None:
        self.child = child
        self.words = words
        self.plan = plan
        self.egress: Egress | None = None
        self.refusals = Refusals()
        self.is_shared = False  # several sessions have used the process
        self._reported: set[Denial] = set()
        self._recent: deque[tuple[float, Denial]] = deque(maxlen=20)
        self._on_denial = on_denial

    def open_network(self, channel: socket.socket) -> None:
        """Take the sockets that the process has sent, and serve them."""
        if not self.plan.steps["listen"]:
            return
        channel.setblocking(False)
        kind, fds, _, _ = socket.recv_fds(channel, 1, MAX_SOCKETS)
        opened = [socket.socket(fileno=fd) for fd in fds]
        names = 2 if kind == b"6" else 1
        loop = asyncio.get_running_loop()
        self.egress = Egress(loop, self.plan.rules, opened[:names], opened[names:], self._host_denied)

    def count_with(self, earlier: Refusals) -> None:
        """Continue the count of the child's former processes."""
        for denial, times in self.refusals.newest():
            earlier.count(denial, times)
        self.refusals = earlier

    def program_pid(self, pid: int) -> int:
        """Return the process of the child's program: with bubblewrap, the one behind it."""
        for _ in range(
            2 if self.plan.mechanism == "bubblewrap" else 0
        ):  # bubblewrap, and its first process inside
            children = children_by_parent().get(pid, [])
            pid = children[0] if children else 0
        return pid

    def close(self) -> None:
        """End its connections."""
        if self.egress is not None:
            self.egress.close()

    def _host_denied(self, host: str, port: int) -> None:
        denial = host_denial(host, port)
        self._recent.append((monotonic(), denial))
        self._count(denial)

    def _count(self, denial: Denial) -> None:
        self.refusals.count(denial)
        if denial not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(denial)
            self._on_denial(denial)  # once for each: a child may try in a loop

    def explain(self, text: str) -> list[Denial]:
        """Return what this sandbox has to do with an error message of its child."""
        text = text[:MAX_CHARS]
        found = find_denials(text, self.plan)
        if self.words.network in ("none", "loopback"):
            closed = network_denial(text, self.words.network)
            found += [closed] if closed is not None else []
        for denial in found:
            self._count(denial)
        since = monotonic() - RECENT_S
        found += [denial for at, denial in self._recent if at > since and denial.target in text]
        if not found and not self.is_shared and NETWORK_REFUSALS.search(text):
            found += [denial for at, denial in self._recent if at > since][-1:]
        return list(dict.fromkeys(found))[:3]

    def explanation(self, text: str) -> str:
        """Return what this sandbox has to do with an error message, or an empty string."""
        return sentences(self.explain(text), self.child)

    def explain_result(self, result: bytes) -> bytes:
        """Return a failed tool result with the explanation added; empty if this sandbox does not explain it."""
        try:
            parsed = msgspec.json.decode(result, type=_ToolError)
            rest = msgspec.json.decode(result, type=dict[str, Raw])
        except msgspec.MsgspecError:
            return b""
        text = (
            "\n".join(block.text for block in parsed.content if block.type == "text")
            if parsed.is_error
            else ""
        )
        explanation = self.explanation(text)
        if not explanation:
            return b""
        blocks = msgspec.json.decode(rest["content"], type=list[Raw])
        blocks.append(Raw(msgspec.json.encode({"type": "text", "text": explanation})))
        return msgspec.json.encode(rest | {"content": blocks})

    def explain_rpc_error(self, error: bytes) -> bytes:
        """Return a JSON-RPC error with the explanation in its message; empty if this sandbox does not explain it."""
        try:
            members = msgspec.json.decode(error, type=dict[str, Raw])
            message = msgspec.json.decode(members["message"], type=str)
        except (msgspec.MsgspecError, KeyError):
            return b""
        explanation = self.explanation(message)
        if not explanation:
            return b""
        return msgspec.json.encode(members | {"message": f"{message} {explanation}"})


class _Block(Struct):
    type: str = ""
    text: str = ""


class _ToolError(Struct, rename="camel"):
    content: list[_Block] = []
    is_error: bool = False


class SandboxRunner:
    """Starts processes in sandboxes, with one launcher."""

    def __init__(self, launcher: Launcher, workspace: str, environ: Mapping[str, str], cache: str) -> None:
        self._launcher = launcher
        self._workspace = workspace
        self._environ = environ
        self._home = environ.get("HOME", "")
        self._cache = cache
        self._support: asyncio.Future[Support] | None = None
        self._bubblewrap: asyncio.Future[Support | None] | None = None
        self._installing: dict[str, asyncio.Task[str | Failure]] = {}  # by folder

    async def support(self) -> Support:
        """Return what this system offers; tried once, in a forked process."""
        if self._support is None:
            self._support = asyncio.get_running_loop().create_task(self._probe())
        return await asyncio.shield(self._support)

    async def support_for(self, words: SandboxWords) -> Support:
        """Return what this system offers for these words. bubblewrap is tried if they name it."""
        support = await self.support()
        if words.mechanism != "bubblewrap" or support.bubblewrap is not None:
            return support
        if self._bubblewrap is None:
            self._bubblewrap = asyncio.ensure_future(asyncio.to_thread(find_bubblewrap))
        return structs.replace(support, bubblewrap=await asyncio.shield(self._bubblewrap))

    def use_support(self, support: asyncio.Future[Support]) -> None:
        """Take a system's support as known, instead of trying it."""
        self._support = support

    async def _probe(self) -> Support:
        if sys.platform != "linux":
            return Support(is_root=os.geteuid() == 0, system=sys.platform, programs=find_programs())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            request = SandboxRequest(CONFINE, {}, theirs.fileno())
            process = await self._launcher.spawn([], {}, "/", request)
            for fd in (process.stdin, process.stdout, process.stderr):
                os.close(fd)
            theirs.close()
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                data = await loop.sock_recv(ours, 4096)
        found = marshal.loads(data[1:]) if data[:1] == b"P" else {}
        support = Support.of(found, is_root=os.geteuid() == 0, programs=find_programs())
        if not support.mount:
            return structs.replace(support, bubblewrap=await asyncio.to_thread(find_bubblewrap))
        return support

    def places(self, child: str) -> Places:
        """Return the folders of a child. Its cache is its own in every workspace."""
        return child_places(self._workspace, self._home, self._cache, child)

    async def start(
        self,
        child: str,
        words: SandboxWords,
        launch: Launch,
        inherited: Iterable[str],
        on_denial: OnDenial,
        decisive: Sequence[str] = (),
    ) -> tuple[ChildProcess, RunningSandbox] | Failure:
        """Start a process in its sandbox; a package runner in two phases. Raises as `Launcher.spawn` does.

        `decisive` are files that decide what runs: they stay as they are.
        """
        prepared = await self._installed(child, words, launch)
        if isinstance(prepared, Failure):
            return prepared
        try:
            return await self._start(
                child, prepared[1], prepared[0], inherited, self.places(child), on_denial, decisive
            )
        except _WiderPlanError as wider:
            return _wider_failure(child, wider.paths)

    async def _installed(
        self, child: str, words: SandboxWords, launch: Launch
    ) -> tuple[Launch, SandboxWords] | Failure:
        """Install the package of a package runner, unless it is installed already; return what is to be run."""
        folder = packages_folder(self.places(child))
        installation = installations.find_installation(launch, folder, self._home)
        if installation is None:
            return launch, words
        program = await asyncio.to_thread(installations.installed_program, installation)
        if not program:
            # It goes on if this start is given up: the next one then waits for the rest of it only.
            task = self._installing.get(folder)
            if task is None:
                installing = self._install(
                    child,
                    structs.replace(
                        installation, words=structs.replace(installation.words, mechanism=words.mechanism)
                    ),
                )
                task = self._installing[folder] = asyncio.get_running_loop().create_task(installing)
                task.add_done_callback(lambda _: self._installing.pop(folder, None))
            outcome = await asyncio.shield(task)
            if isinstance(outcome, Failure):
                return outcome
            program = outcome
        return installations.second_phase(installation, program, launch, words)

    async def _install(self, child: str, installation: installations.Installation) -> str | Failure:
        """Install a package, one process on this machine at a time; return the installed program."""
        lock = await asyncio.to_thread(installations.lock, installation)
        try:
            program = await asyncio.to_thread(installations.installed_program, installation)
            return program or await self._first_phase(child, installation)
        finally:
            os.close(lock)

    async def _first_phase(self, child: str, installation: installations.Installation) -> str | Failure:
        """Run the command that installs a package in its sandbox."""
        await asyncio.to_thread(installations.begin, installation)
        launch, places = installation.launch, Places(installation.folder, self._home, installation.folder)
        # All variables count as inherited: install scripts get none of the child's secrets.
        started = await self._start(child, installation.words, launch, launch.env, places, lambda _: None)
        if isinstance(started, Failure):
            return started
        process, sandbox = started
        os.close(process.stdin)
        try:
            _, stderr = await asyncio.gather(
                *(asyncio.to_thread(_read_tail, fd) for fd in (process.stdout, process.stderr))
            )
            await process.exited
        finally:
            process.end()
            sandbox.close()
        return await asyncio.to_thread(installations.finish, installation) or failure(
            "child_start_failed",
            f"Child '{child}': the package {installation.request.spec} could not be installed.",
            child=child,
            hint=f"Its first start needs the network, later ones do not. Try `{' '.join(launch.argv)}`.",
            stderr=stderr.splitlines()[-STDERR_LINES:],
        )

    async def _start(
        self,
        child: str,
        words: SandboxWords,
        launch: Launch,
        inherited: Iterable[str],
        places: Places,
        on_denial: OnDenial,
        decisive: Sequence[str] = (),
    ) -> tuple[ChildProcess, RunningSandbox] | Failure:
        support = await self.support_for(words)
        if refused := unavailable(child, words, support) or too_wide(child, words, places):
            return refused
        mechanism = mechanism_of(words, support)
        own_tools = tools() if mechanism == "bubblewrap" else ()

        def prepare() -> SandboxPlan:
            machine = os.uname().machine
            plan = make_plan(words, launch, inherited, places, support, machine, own_tools, decisive)
            if wider := wider_paths(places, words, launch, plan):
                raise _WiderPlanError(wider)
            for folder in plan.folders:
                os.makedirs(folder, 0o700, exist_ok=True)
            return plan

        if mechanism == "linux" and support.system == "linux":
            return await self._start_confined(child, words, prepare, on_denial)
        plan = prepare()
        sandbox = RunningSandbox(child, words, plan, on_denial)
        if support.system != "linux":
            return await self._launcher.spawn(launch.argv, launch.env, launch.cwd), sandbox
        ours, theirs = socket.socketpair()
        with ours, theirs:
            return await self._start_bubblewrap(words, plan, support, ours, theirs, sandbox), sandbox

    async def _start_confined(
        self, child: str, words: SandboxWords, prepare: Callable[[], SandboxPlan], on_denial: OnDenial
    ) -> tuple[ChildProcess, RunningSandbox]:
        """Start a process that confines itself. Its plan is made while it is forked, which takes longer."""
        sandbox: RunningSandbox | None = None

        def send_launch() -> None:
            nonlocal sandbox
            plan = prepare()
            sandbox = RunningSandbox(child, words, plan, on_denial)
            own = plan.launch
            ours.sendall(encode_launch(own.argv, own.env, own.cwd, plan.steps))

        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(REQUEST_TIMEOUT_S)
            request = SandboxRequest(CONFINE, LATER, theirs.fileno(), send_launch)
            process = await self._launcher.spawn([], {}, "/", request)
            assert sandbox is not None
            sandbox.open_network(ours)
        return process, sandbox

    async def _start_bubblewrap(
        self,
        words: SandboxWords,
        plan: SandboxPlan,
        support: Support,
        ours: socket.socket,
        theirs: socket.socket,
        sandbox: RunningSandbox,
    ) -> ChildProcess:
        """Start bubblewrap with our own program inside, which applies the rest of the plan and becomes the child's."""
        program = inside(words, support).programs["bubblewrap"]
        command = [*interpreter(), CONFINE, str(CHANNEL)]
        argv = bubblewrap_argv(program, plan.steps["view"], words.network != "all", command)
        rest = plan.steps | {"namespaces": 0, "view": []}
        body = encode_launch(plan.launch.argv, plan.launch.env, plan.launch.cwd, rest)
        request = SandboxRequest(CONFINE, {"wrapped": True}, theirs.fileno())
        process = await self._launcher.spawn(argv, {}, "/", request)
        theirs.close()
        loop = asyncio.get_running_loop()
        try:
            ours.setblocking(False)
            await loop.sock_sendall(ours, body)
            if rest["listen"]:
                await _wait_readable(ours)
                if ours.recv(1, socket.MSG_PEEK) in (b"4", b"6"):
                    sandbox.open_network(ours)
            report = await loop.sock_recv(ours, 200)  # it ends when the program starts
            if report:
                code, _, where = report[1:].decode().partition(" ")
                raise SpawnError(int(code), where)
        except BaseException:
            process.end()
            sandbox.close()
            for fd in (process.stdin, process.stdout, process.stderr):
                os.close(fd)
            raise
        return process


async def _wait_readable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(channel.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(channel.fileno())


class _WiderPlanError(Exception):
    """The plan of a child has more than that of its first start."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(", ".join(paths))
        self.paths = paths


def _wider_failure(child: str, paths: list[str]) -> Failure:
    shown = ", ".join(f"'{path}'" for path in paths[:3]) + (" and others" if len(paths) > 3 else "")
    return failure(
        "sandbox_unavailable",
        f"Child '{child}' would use {shown} in its sandbox, which it did not at its first start. It was not started.",
        child=child,
        hint=f"If that is right, run `switchboard sandbox update {shell_word(child)}`: its next start is recorded.",
    )


def unavailable(child: str, words: SandboxWords, support: Support) -> Failure | None:
    """Return the failure of a child that requires its sandbox, if a promise of it does not hold here."""
    if reason := unusable(words, support):
        return failure(
            "sandbox_unavailable",
            f"Child '{child}' cannot start in the sandbox that its config names: {reason}.",
            child=child,
        )
    broken = [one for one in promises(words, support) if not one.holds] if words.required else []
    if not broken:
        return None
    reasons = "; ".join(f"{promise.text}: {promise.why}" for promise in broken)
    return failure(
        "sandbox_unavailable",
        f"Child '{child}' requires its sandbox, and this system cannot keep all of it: {reasons}.",
        child=child,
    )


def _read_tail(fd: int) -> str:
    """Read a pipe to its end, and return the last part of it."""
    tail = b""
    with open(fd, "rb", buffering=0) as file:
        while chunk := file.read(65_536):
            tail = (tail + chunk)[-MAX_OUTPUT:]
    return tail.decode("utf-8", "replace")


def child_places(workspace: str, home: str, cache: str, child: str) -> Places:
    """Return the folders of a child in a workspace, below a cache folder for all of them."""
    digest = sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:12]
    name = "".join(char if char.isalnum() or char in "-_" else "_" for char in child)[:64]
    mark = sha256(os.fsencode(child)).hexdigest()[:6]
    return Places(workspace, home, os.path.join(cache, digest, f"{name}-{mark}"))
