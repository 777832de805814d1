"""A pytest plugin: tests that start processes leave none behind, and all other tests start none.

Everything outside `tests/unit` may start processes. In `tests/unit` the mark `processes` allows it: for the folders and
files in `WITH_PROCESSES`, and for the tests that carry it.
"""

from __future__ import annotations

import _posixsubprocess
import contextlib
import os
import resource
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.brokers import stop_idle_brokers
from tests.e2e import command_server
from tests.processes import MARK, adopts_orphans, living

TESTS = Path(__file__).resolve().parent
# Folders and files below tests/unit that start processes.
WITH_PROCESSES = (
    "broker/test_address.py",
    "broker/test_peers.py",
    "cli/commands/test_ask.py",
    "cli/commands/test_completions.py",
    "cli/commands/test_empty_workspace.py",
    "cli/commands/test_init.py",
    "cli/commands/test_wrap.py",
    "cli/doctor/test_program_findings.py",
    "cli/test_completion_names.py",
    "cli/test_declarations.py",
    "cli/test_start_all.py",
    "database",
    "mail/conversations/test_recall_races.py",
    "mail/store",
    "mail/terminal/test_terminal_registry.py",
    "mail/test_presence.py",
    "observability/audit",
    "observability/test_log.py",
    "policy/launch/test_surroundings.py",
    "programs",
    "sandbox",
    "server/http/test_front_imports.py",
    "system/test_processes.py",
    "transport/http/test_oauth.py",
    "transport/process",
)
# Asked once: a test that replaces `os.getpid` must not make all processes of the machine look like its own.
OWN_PID = os.getpid()
# A process that was told to stop may need a moment; one that needs longer was not told.
GRACE_SECONDS = 60.0
# Everything in the standard library that starts a process ends in one of these.
STARTERS = (
    (os, "fork"),
    (os, "forkpty"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (os, "system"),
    (_posixsubprocess, "fork_exec"),
    (subprocess, "_fork_exec"),
)


class ProcessGuard:
    """Makes starting a process an error while a test runs that may not."""

    def __init__(self) -> None:
        self.forbidden = False
        self.attempts: list[str] = []
        for module, name in STARTERS:
            if hasattr(module, name):
                setattr(module, name, self._guarded(getattr(module, name), name))

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow it for a moment, to a server that many tests share."""
        before, self.forbidden = self.forbidden, False
        yield
        self.forbidden = before

    def _guarded(self, start: Callable[..., Any], name: str) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.forbidden and os.getpid() == OWN_PID:
                self.attempts.append("".join(traceback.format_stack(limit=8)))
                pytest.fail(f"the test starts a process ({name}): mark it `processes`", pytrace=True)
            return start(*args, **kwargs)

        return guarded


GUARD = ProcessGuard()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    allowed = tuple(TESTS / "unit" / path for path in WITH_PROCESSES)
    for item in items:
        if not item.path.is_relative_to(TESTS / "unit") or any(map(item.path.is_relative_to, allowed)):
            item.add_marker(pytest.mark.processes)


@pytest.fixture(scope="session")
def process_guard() -> ProcessGuard:
    """What forbids processes, for fixtures whose servers many tests share."""
    return GUARD


@pytest.fixture(autouse=True)
def watched_processes(
    request: pytest.FixtureRequest, isolated_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fails a test that leaves a process behind, or that starts one without the mark `processes`."""
    may_start = request.node.get_closest_marker("processes") is not None
    yield from _no_process_left(isolated_runtime, monkeypatch) if may_start else _no_process_started()


def _no_process_started() -> Iterator[None]:
    GUARD.attempts.clear()
    GUARD.forbidden = True
    yield
    GUARD.forbidden = False
    if GUARD.attempts:
        pytest.fail("the test started a process; mark it `processes`:\n" + GUARD.attempts[0], pytrace=False)


def _no_process_left(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check the processes before and after a test; end those that it left.

    A broker whose sessions have ended waits for the next one for a while, so it is stopped.

    A process belongs to the test when it descends from this one, or carries the test's mark in its
    environment. The mark finds those that were orphaned; so pass the environment on
    (`env=dict(os.environ)`) where a library does not. The environments of all processes are read only after a test
    that has started one: it is among the descendants, or has been waited for.
    """
    if sys.platform != "linux":
        yield
        return
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    before, waited_for = _descendants(skip=frozenset()), _faults_of_children()
    yield
    stop_idle_brokers(runtime, mark)
    left = _descendants(skip=before)
    if left or before != _descendants(skip=frozenset()) or waited_for != _faults_of_children():
        left |= _marked(mark)
    _, alive = psutil.wait_procs(living(left), timeout=GRACE_SECONDS)
    if adopts_orphans():
        pytest.fail("the test left this process a subreaper: close the Launcher", pytrace=False)
    if not alive:
        return
    names = [_describe(process) for process in alive]
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)
    pytest.fail("the test left processes behind:\n  " + "\n  ".join(names), pytrace=False)


def _descendants(*, skip: frozenset[int]) -> frozenset[int]:
    """Living descendants of this process, without those in `skip` and what these started.

    The server that forks commands serves all tests; the commands are the test's.
    """
    found: set[int] = set()
    todo = [OWN_PID, *command_server.pids()]
    while todo:
        children = _children(todo.pop()) - skip - found - command_server.pids()
        found |= children
        todo += children
    return frozenset(found)


def _faults_of_children() -> tuple[int, int]:
    """Page faults of all processes that were waited for: no process runs without one. And the forked commands."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt, command_server.count()


def _children(pid: int) -> set[int]:
    children: set[int] = set()
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            children.update(map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended while we looked
    return children


def _marked(mark: str) -> frozenset[int]:
    wanted = f"{MARK}={mark}".encode()
    found: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == OWN_PID:
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue  # gone, or somebody else's
        if wanted in environment.split(b"\0"):
            found.add(int(entry))
    return frozenset(found)


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.Error:
        return str(process.pid)
