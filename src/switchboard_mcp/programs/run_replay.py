"""Repeats a run from its beginning with the results that are recorded, without a call.

Programs are deterministic: the clock and the seed are those of the start, and outcomes come in the recorded order.
"""

from __future__ import annotations

from dataclasses import replace

from switchboard_mcp.programs.engine import Engine, Failed, Limits, Program, Step, Waiting
from switchboard_mcp.programs.run_log import RecordedRun

DIFFERED = Failed(
    "snapshot",
    "The program did not repeat its calls after a restart. Look at the calls that were made, then run it again.",
)


async def replay(engine: Engine, program: Program, limits: Limits, recorded: RecordedRun) -> Step:
    """Return the last wait of a run; a failure if the program makes other calls than those recorded."""
    calls_made = 0
    step = await engine.start(
        program.code, program.modules, program.input, limits, program.seed, program.clock
    )
    for number, wait in enumerate(recorded.waits):
        if number and isinstance(step, Waiting):
            ids = [id for id in wait.settled if id in recorded.results]
            settled = {id: recorded.results[id].settled for id in ids}
            step = await engine.resume(step.suspension, program.modules, settled, limits, calls_made)
        if isinstance(step, Failed) and step.kind in ("crash", "limit", "lost"):
            return step
        if not isinstance(step, Waiting) or list(step.calls) != wait.calls:
            return DIFFERED
        calls_made += len(step.calls)
    return replace(step, calls=(), printed="") if isinstance(step, Waiting) else step
