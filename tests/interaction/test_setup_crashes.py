"""`init` and `revert` killed at every step: each file is as it was or as it should be, and `revert` brings all back."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.setup import journal
from switchboard_mcp.setup import revert as revert_module
from switchboard_mcp.setup.child_entries import server_from_spec, taken_names
from switchboard_mcp.setup.discovery import discover_servers
from switchboard_mcp.setup.hosts import BY_NAME
from switchboard_mcp.setup.journal import JournalFolder, JournalRun, begin, journal_folder, load_runs, perform
from switchboard_mcp.setup.paths import host_paths
from switchboard_mcp.setup.plan import ExistingSetup, Plan, SetupOptions, decide, make_plan
from switchboard_mcp.setup.revert import interrupted, perform_revert, plan_revert, revertible
from tests.hostfiles import HOSTS, Person

# Calls that change something: a process may die between any two of them.
STEPS = frozenset(
    {"open", "write", "fsync", "fchmod", "close", "replace", "mkdir", "chmod", "unlink", "rmdir"}
)
# Every third step in `make test`, every one in `make soak`.
STRIDES = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak("crashes"))])


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such a place: what is synced a few thousand times need not reach a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


class Fuse(ModuleType):
    """`os`, of which the process dies at the `left`-th call that changes something; a write is done by half."""

    def __init__(self, left: int) -> None:
        super().__init__("os")
        self.left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._around(name, found) if name in STEPS else found

    def _around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> Any:
            if self.left == 0:
                if name == "write":
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            return call(*args, **options)

        return stepped


def killed(work: Callable[[], None], step: int) -> bool:
    """Do something in a process that dies at a step; whether it died."""
    child = os.fork()
    if not child:
        code = 1
        try:
            fuse = Fuse(step)
            journal.os = fuse  # type: ignore[attr-defined]
            revert_module.os = fuse  # type: ignore[attr-defined]
            work()
            code = 0
        except BaseException as problem:  # noqa: BLE001 - a fork must not go on as a second test run
            sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def plan_of(person: Person) -> Plan:
    folder = str(person.workspace)
    workspace = load_workspace(folder, None, {})
    known = {spec.name: server_from_spec(spec, workspace.config, folder) for spec in workspace.children}
    present = ExistingSetup(children=known, names=taken_names(folder, workspace.children))
    survey = discover_servers(
        host_paths(folder, person.environment(), "linux"), list(BY_NAME), (), named=False
    )
    outcomes, children = decide(survey, present, folder)
    wanted = SetupOptions(
        workspace=folder,
        config=os.path.join(folder, "switchboard.config.json"),
        command=["/bin/switchboard", "--workspace", folder],
        environ={},
        enable=("mail",),
    )
    return make_plan(survey, outcomes, children, wanted)


def journals(person: Person) -> JournalFolder:
    return journal_folder(str(person.workspace), person.environment())


def undo(person: Person, runs: list[JournalRun]) -> None:
    here = host_paths(str(person.workspace), person.environment(), "linux")
    perform_revert(plan_revert(runs, here))


def initialise(person: Person) -> None:
    undo(person, interrupted(load_runs(journals(person))))
    plan = plan_of(person)
    if plan.changes:
        perform(plan.changes, begin(journals(person), plan.changes))


def revert(person: Person) -> None:
    undo(person, revertible(load_runs(journals(person))))


def host_files(person: Person) -> dict[str, tuple[bytes, int]]:
    """What is not ours."""
    return {
        path: found
        for path, found in person.files().items()
        if not path.startswith(("workspace/.switchboard/", "home/.local/state/"))
    }


def fresh(folder: Path) -> Person:
    shutil.rmtree(folder / "p", ignore_errors=True)
    return Person(folder / "p", "warp", "codex", "goose")


@STRIDES
def test_init_that_is_killed_leaves_every_file_old_or_new_and_revert_works(folder: Path, stride: int) -> None:
    person = fresh(folder)
    before = person.files()
    initialise(person)
    after = host_files(person)
    step = 0
    seen: set[str] = set()
    while True:
        person = fresh(folder)
        died = killed(lambda person=person: initialise(person), step)  # type: ignore[misc]
        now = {
            path: found
            for path, found in host_files(person).items()
            if not path.endswith(journal.TEMP_SUFFIX)
        }
        for path, found in now.items():
            assert found in (before.get(path), after[path]), f"{path} is neither old nor new at step {step}"
        seen.add("".join("n" if now.get(path) == after[path] else "o" for path in sorted(after)))
        if step % 2:
            # Whoever tries again gets all the way.
            initialise(person)
            assert _clean(host_files(person)) == after
        revert(person)
        assert _clean(person.files()) == _clean(before), f"revert does not bring all back at step {step}"
        if not died:
            break
        step += stride
    assert step > 60
    assert len(seen) >= 4, "the files change one after the other"


@STRIDES
def test_revert_that_is_killed_can_be_run_again(folder: Path, stride: int) -> None:
    person = fresh(folder)
    before = person.files()
    step = 0
    while True:
        person = fresh(folder)
        initialise(person)
        after = host_files(person)
        died = killed(lambda person=person: revert(person), step)  # type: ignore[misc]
        for path, found in host_files(person).items():
            if not path.endswith(journal.TEMP_SUFFIX):
                assert found in (before.get(path), after.get(path))
        revert(person)
        assert _clean(person.files()) == _clean(before)
        if not died:
            break
        step += stride
    assert step > 30


def _clean(files: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    """A folder of a run that never began holds copies of files that nobody changed."""
    ours = ("workspace/.switchboard/", "home/.local/state/")
    return {path: found for path, found in files.items() if not path.startswith(ours)}


def test_the_hosts_of_this_test_have_every_format() -> None:
    assert {Path(HOSTS[host].file).suffix for host in ("warp", "codex", "goose")} == {
        ".json",
        ".toml",
        ".yaml",
    }


def test_a_file_that_changes_in_the_meantime_is_not_overwritten(folder: Path) -> None:
    from switchboard_mcp.errors import SwitchboardError

    person = fresh(folder)
    plan = plan_of(person)
    path = person.home / ".warp" / ".mcp.json"
    path.write_text(path.read_text().replace("web", "net"))
    with pytest.raises(SwitchboardError, match=r"\.mcp\.json was changed by another program"):
        perform(plan.changes, begin(journals(person), plan.changes))
    assert "net" in path.read_text()
    assert "switchboard" not in path.read_text()
    initialise(person)
    revert(person)
    assert "net" in path.read_text()
