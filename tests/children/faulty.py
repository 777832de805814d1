#!/usr/bin/env python3
"""MCP servers with one fault each, for tests with real processes: `python faulty.py MODE [ARGUMENT ...]`.

Everything that is not the fault behaves well: each answers `echo(message)` where its fault allows.
Without a mode it lists them. With FAULTY_PIDS set to a file, every server appends its pid to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

# It runs as a program, from any folder and in any environment.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.children import faulty_answers as answers
from tests.children import faulty_bytes as octets
from tests.children import faulty_life as life
from tests.children.plain_child import record

MODES: tuple[Callable[..., None], ...] = (
    life.never_answers,
    life.exits_at_once,
    life.slow_start,
    life.deaf,
    life.detaches,
    life.crashes_on,
    life.dies_inside,
    life.closes_stdin,
    life.closes_stdout,
    life.stops_reading,
    life.unknown_version,
    life.refuses_initialize,
    life.paginated,
    life.endless_pages,
    life.slow_pages,
    life.list_changed,
    octets.garbage,
    octets.log_lines,
    octets.content_length,
    octets.split,
    octets.invalid_utf8,
    octets.big,
    octets.floods,
    octets.counts,
    octets.stderr_burst,
    octets.odd_json,
    answers.asks_back,
    answers.duplicates,
    answers.out_of_order,
    answers.unknown_id,
    answers.late,
    answers.unreadable,
    answers.error_data,
    answers.wrong_shapes,
)


def main(argv: list[str]) -> int:
    modes = {mode.__name__.replace("_", "-"): mode for mode in MODES}
    if not argv or argv[0] not in modes:
        for name, mode in modes.items():
            print(f"{name:20} {mode.__doc__}", file=sys.stderr)
        return 2
    if pid_file := os.environ.get("FAULTY_PIDS"):
        record(pid_file)
    modes[argv[0]](*argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
