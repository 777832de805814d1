"""Sets duration and seed of the fuzz tests. `make fuzz` runs this module.

In `make test` each surface gets a fixed number of examples, the same in every run. `make fuzz` repeats all surfaces
with many more examples and random seeds until its time is over, and prints the seed of each round: run with
`--hypothesis-seed` it fails again. Hypothesis prints the smallest input that fails.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings

Test = TypeVar("Test", bound=Callable[..., object])
# Set by `make fuzz`: how many times as many examples as in `make test`.
FACTOR = int(os.environ.get("SWITCHBOARD_FUZZ_FACTOR", "0"))


def fuzz(examples: int) -> Callable[[Test], Test]:
    """Return the settings of a fuzz test that runs this many examples in `make test`."""
    return settings(
        max_examples=examples * (FACTOR or 1),
        derandomize=not FACTOR,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seed = random.randrange(2**32)
        print(f"seed {seed}, {end - time.monotonic():.0f} s left", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "tests/fuzz"]
        env = {**os.environ, "SWITCHBOARD_FUZZ_FACTOR": "10"}
        done = subprocess.run([*command, f"--hypothesis-seed={seed}"], env=env, check=False)
        if done.returncode:
            print(f"It failed with the seed {seed}. To repeat it:")
            print(f"  SWITCHBOARD_FUZZ_FACTOR=10 .venv/bin/pytest tests/fuzz --hypothesis-seed={seed}")
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
