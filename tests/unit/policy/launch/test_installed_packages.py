"""Packages installed beside a launch are pinned: read whole at the approval, compared by status at a start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

from switchboard_mcp.config.files.approvals import Approval, Approvals
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.launch import installed_packages
from switchboard_mcp.policy.launch.approval import propose
from switchboard_mcp.policy.launch.child_approval import describe_approval
from switchboard_mcp.policy.launch.file_inspector import HashedFile
from switchboard_mcp.policy.launch.installed_packages import find_packages
from switchboard_mcp.policy.launch.rules import ApprovedLaunch, LaunchPolicy
from tests.unit.policy.launch.launching import Place


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def approved(place: Place, **entry: object) -> tuple[LaunchPolicy, Approval]:
    """Approve a child as it is now, with a state folder."""
    environ = {**place.guard().environ, "XDG_STATE_HOME": str(place.folder.parent / "state")}
    policy = structs.replace(place.guard(), environ=environ)
    spec = place.spec(env={}, **entry)
    approval = propose(spec, policy, frozenset())
    assert isinstance(approval, Approval), approval
    policy = structs.replace(policy, approvals=Approvals(children={"good": approval}))
    assert isinstance(policy.approve(spec), ApprovedLaunch)
    return policy, approval


def test_a_changed_dependency_stops_the_child_and_a_start_reads_only_what_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = place.folder / "node_modules"
    put(modules / "server" / "package.json", '{"name": "server", "version": "1.0.0", "bin": "cli.js"}')
    put(modules / "server" / "cli.js", f"#!{place.node}\nrequire('hoisted')\n").chmod(0o755)
    hoisted = put(modules / "hoisted" / "index.js", "good()")
    policy, approval = approved(place, command="npx", args=["-y", "server"])
    spec = place.spec(command="npx", args=["-y", "server"], env={})
    assert [pin.path for pin in approval.files if pin.installed] == ["${workspace}/node_modules"]
    assert any("all packages" in value for _, value in describe_approval(spec, approval))
    whole: list[str] = []
    reading = installed_packages.hash_packages

    def read(folder: str) -> HashedFile:
        whole.append(folder)
        return reading(folder)

    monkeypatch.setattr(installed_packages, "hash_packages", read)
    assert isinstance(policy.approve(spec), ApprovedLaunch)
    assert whole == []
    assert isinstance(structs.replace(policy, reads_packages=True).approve(spec), ApprovedLaunch)
    assert len(whole) == 1
    times = hoisted.stat()
    hoisted.write_text("evil()")
    os.utime(hoisted, ns=(times.st_atime_ns, times.st_mtime_ns))  # the change time stays
    refusal = policy.approve(spec)
    assert isinstance(refusal, Failure)
    assert "is not what was approved" in refusal.message
    hoisted.write_text("good()")
    assert isinstance(policy.approve(spec), ApprovedLaunch)  # read again, and the same
    put(modules / "added" / "index.js", "evil()")
    assert isinstance(policy.approve(spec), Failure)


def test_packages_above_a_script_and_of_an_environment_belong_to_a_launch(
    place: Place, tmp_path: Path
) -> None:
    script = put(place.folder / "server" / "index.js", "require('a')")
    put(place.folder / "node_modules" / "a" / "index.js", "")
    environment = tmp_path / "venv"
    put(environment / "pyvenv.cfg", "")
    python = put(environment / "bin" / "python", "")
    packages = environment / "lib" / "python3.11" / "site-packages"
    put(packages / "dep.py", "")
    uses, alone = put(tmp_path / "uses.py", "import dep\n"), put(tmp_path / "alone.py", "import json\n")
    cases = {
        "above a script": ([str(place.node), str(script)], [str(place.folder / "node_modules")]),
        "a module": ([str(python), "-I", "-m", "dep"], [str(packages)]),
        "a script that imports one": ([str(python), "-I", str(uses)], [str(packages)]),
        "a script of the standard library": ([str(python), "-I", str(alone)], []),
        "a tool": ([str(python), str(packages / "dep.py")], [str(packages)]),
    }
    wrong = {
        name: found for name, (argv, expected) in cases.items()
        if list(found := find_packages(argv, []).folders) != expected
    }  # fmt: skip
    assert not wrong


def test_what_cannot_be_pinned_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_packages, "MAX_FILES", 2)
    for number in range(3):
        put(place.folder / "node_modules" / f"p{number}" / "index.js", "")
    script = str(put(place.folder / "index.js", ""))
    found = find_packages([str(place.node), script], ["/usr/lib/python3/dist-packages/x.py"])
    assert found.folders == ()
    named = [reason.split()[0] for reason in found.unpinned]
    assert named == ["/usr/lib/python3/dist-packages", str(place.folder / "node_modules")]
