"""A pytest plugin: selects the long tests, which are marked `soak("PART")` and run only with `--soak PART`.

`scripts/soak` (or `make soak ARGS=PART`) runs them. `common` is every part that is run before a release, in at most
40 minutes on two cores; `all` adds the parts that take longer.
"""

from __future__ import annotations

import pytest

COMMON = {
    "crashes": "kills at every step and at random: mail, set-up, children, the broker",
    "floods": "hundreds of megabytes from hosts, children and over HTTP",
    "fuzz": "random messages, files and bytes, with further seeds",
    "hosts": "every real host, with every kind of session",
    "conformance": "the official suites in both directions",
    "upgrade": "workspaces and mail of the previous layout",
    "servers": "published servers and every combination of features",
}
LONGER = {"hours": "what takes longer than the common part allows"}
PARTS = COMMON | LONGER


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak",
        metavar="PART",
        help=f"run the long tests of a part instead: {', '.join(PARTS)}, common or all",
    )


def pytest_configure(config: pytest.Config) -> None:
    part = config.getoption("--soak")
    if part is not None:
        selected_parts(part)


def selected_parts(part: str) -> set[str]:
    """Return the parts that an argument of `--soak` stands for."""
    parts = {"common": set(COMMON), "all": set(PARTS)}.get(part, {part})
    if not parts <= set(PARTS):
        raise pytest.UsageError(f"There is no soak part '{part}'. Parts: {', '.join(PARTS)}, common, all.")
    return parts


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--soak")
    wanted = selected_parts(part) if part is not None else None
    selected: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("soak")
        if mark is not None and not (len(mark.args) == 1 and mark.args[0] in PARTS):
            raise pytest.UsageError(f"{item.nodeid}: write soak(PART) with one of {', '.join(PARTS)}.")
        runs = mark is None if wanted is None else mark is not None and mark.args[0] in wanted
        (selected if runs else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected
