"""Several jobs that share the cost of reaching the disk.

A job is a generator that says at which points it cannot go on before something is durable. All jobs of a round run to
such a point, one sync serves them all, and so on; a job whose part fails is told, and the others go on. Owns the
stepping; does not know what the jobs do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import TempFile, Transaction

R = TypeVar("R")
# A job yields the files that must be on the disk before it goes on; or None, for all names it has given or moved.
Wait: TypeAlias = "Sequence[TempFile] | None"
Job: TypeAlias = Generator[Wait, None, R]


class _Running:
    """A job on its way."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.waits: Wait = ()
        self.done = False
        self.outcome: Any = None

    def step(self, path: str, problem: Exception | None = None) -> None:
        """On to the next point where it waits, or to its end."""
        try:
            self.waits = self.job.throw(problem) if problem else next(self.job)
            return
        except StopIteration as end:
            self.outcome = end.value
        except SwitchboardError as refused:
            self.outcome = refused.failure
        except OSError as trouble:
            self.outcome = file_operations.trouble(trouble, path)
        except Exception as fault:  # noqa: BLE001 - a fault in one job is its asker's to hear, not the others'
            self.outcome = fault
        self.done = True


def run(visit: Transaction, jobs: Sequence[Job[R]]) -> list[R | Failure | Exception]:
    """Run the jobs together; what each returned, why it failed, or what it raised that nobody foresaw."""
    running = [_Running(job) for job in jobs]
    for each in running:
        each.step(visit.tree.path)
    while alive := [each for each in running if not each.done]:
        _sync(visit, alive)
    return [each.outcome for each in running]


def _sync(visit: Transaction, alive: list[_Running]) -> None:
    problems: dict[int, Exception] = {}
    waiting = [(id(each), draft) for each in alive for draft in each.waits or ()]
    for (job, _), trouble in zip(waiting, visit.sync_drafts([draft for _, draft in waiting]), strict=True):
        if trouble is not None:
            problems[job] = trouble
    if any(each.waits is None for each in alive):
        try:
            visit.sync_folders()
        except OSError as trouble:
            told = file_operations.trouble(trouble, visit.tree.path)
            unsure = f"{told.message} The message may be stored all the same."
            hint = "Mend it, then send it again with the same idempotencyKey."
            lost = refused("mail_not_stored", unsure, hint=hint)
            problems |= {id(each): lost for each in alive if each.waits is None}
    for each in alive:
        each.step(visit.tree.path, problems.get(id(each)))
