"""What `approve` shows to whoever decides."""

from __future__ import annotations

import io

import pytest

from switchboard_mcp.cli.approve import show_approval
from switchboard_mcp.cli.console import Screen
from switchboard_mcp.config.approvals import Approval, Pin
from switchboard_mcp.config.models import ChildSpec

SAME_VERSION = "The package version is the same"


def approved(node: str = "a", script: str = "b", package: str = "npm:x@1.0.0") -> Approval:
    files = [Pin(path="/usr/bin/node", sha256=node * 64), Pin(path="/srv/x.js", sha256=script * 64)]
    return Approval(command="npx", launch=["/usr/bin/node", "/srv/x.js"], files=files, package=package)


@pytest.mark.parametrize(
    ("now", "warned"),
    [
        (approved(script="c"), True),
        (approved(script="c", package="npm:x@1.0.1"), False),
        (approved(node="c"), False),
        (approved(), False),
    ],
    ids=["files changed under one version", "a new version", "a new interpreter", "nothing"],
)
def test_files_that_changed_under_the_same_version_are_warned_of(now: Approval, warned: bool) -> None:
    shown = io.StringIO()
    spec = ChildSpec(name="x", source="config", kind="stdio", command="npx", cwd="/srv")
    show_approval(spec, now, approved(), Screen(shown, {}))
    assert (SAME_VERSION in shown.getvalue()) == warned
