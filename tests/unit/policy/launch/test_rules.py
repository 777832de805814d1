from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from switchboard_mcp.config.files.approvals import FilePin
from switchboard_mcp.config.sandbox import SandboxSettings
from switchboard_mcp.config.sections import GovernanceSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.launch.installed_packages import hash_packages
from switchboard_mcp.policy.launch.rules import LAUNCH_RULES, ApprovedLaunch, fits
from tests.acl import OPENINGS, WAYS
from tests.cases import each_case
from tests.unit.policy.launch.launching import ENVIRON, Place


def refusal(outcome: ApprovedLaunch | Failure | None) -> str:
    assert isinstance(outcome, Failure)
    assert outcome.child == "good"
    assert outcome.retryable is False
    return outcome.message


def test_the_approved_program_is_the_one_that_runs(place: Place) -> None:
    approved = place.guard().approve(place.spec())
    assert isinstance(approved, ApprovedLaunch)
    assert approved.argv == [str(place.node), str(place.script), "--root", "data"]
    assert approved.cwd == str(place.folder)


def test_children_get_named_variables_only(place: Place) -> None:
    approved = place.guard(GovernanceSettings(mode="governed", env=["PATH", "NOT_SET"])).approve(place.spec())
    assert isinstance(approved, ApprovedLaunch)
    assert approved.env == {"PATH": ENVIRON["PATH"], "TOKEN": "x", "NODE_OPTIONS": "--no-warnings"}


def test_a_child_nobody_approved_is_not_allowed(place: Place) -> None:
    problem = place.guard().check(place.spec(name="other"))
    assert isinstance(problem, Failure)
    assert problem.code == "child_not_allowed"
    assert place.file in problem.message
    assert f"{place.folder}/switchboard.config.json: mcpServers.good" in problem.message
    assert problem.hint == "A person who may approve children runs `switchboard approve other`."


WORKSPACE = SandboxSettings(preset="workspace")
HOSTS = SandboxSettings(preset="workspace", network=["example.com"])


@each_case(
    ("approved", "configured", "why"),
    [
        (
            None,
            WORKSPACE,
            "is missing, since an earlier version approved it without a sandbox; it would run in",
        ),
        (WORKSPACE, SandboxSettings(preset="off"), "is workspace, but the config sets off"),
        (
            WORKSPACE,
            HOSTS,
            'is workspace, but the config sets {"preset":"workspace","network":["example.com"]}',
        ),
        (SandboxSettings(preset="off"), WORKSPACE, "is off, but the config sets workspace"),
        (HOSTS, structs.replace(HOSTS, network="all"), "is {"),
    ],
    place=Place,
)
def test_a_sandbox_that_was_not_approved_is_refused_and_the_refusal_names_the_command(
    place: Place, approved: SandboxSettings | None, configured: SandboxSettings, why: str
) -> None:
    policy = structs.replace(place.guard(sandbox=approved), sandbox_of=lambda _: configured)
    problem = policy.check(place.spec())
    assert f"{place.file}: children.good.sandbox: {why}" in refusal(problem)
    assert "`switchboard approve good`" in str(problem and problem.hint)
    assert policy.approve(place.spec()) == problem
    same = structs.replace(place.guard(sandbox=configured), sandbox_of=lambda _: configured)
    assert same.check(place.spec()) is None


@each_case(
    ("changes", "key", "why"),
    [
        ({"command": "nodejs"}, "command", "is not what was approved"),
        ({"args": ["other.js", "--root", "data"]}, "args[0]", "is not what was approved"),
        ({"args": ["index.js", "--root", "-rf"]}, "args[2]", "is not what was approved"),
        ({"args": ["index.js", "--root"]}, "args", "has 2 members; 3 were approved"),
        ({"args": ["index.js", "--root", "data", "more"]}, "args", "has 4 members; 3 were approved"),
        ({"env": {"OTHER": "x"}}, "env.OTHER", "not an approved variable"),
        ({"env": {"NODE_OPTIONS": "--import /evil.js"}}, "env.NODE_OPTIONS", "changes what runs"),
        ({"env": {"PYTHONPATH": "/evil"}}, "env.PYTHONPATH", "changes what runs"),
        ({"cwd": "/"}, "cwd", "outside the workspace"),
        ({"kind": "http", "url": "https://evil.example/"}, "type", "is not what was approved"),
    ],
    place=Place,
)
def test_an_entry_that_changed_since_is_refused_with_file_and_key(
    place: Place, changes: dict[str, Any], key: str, why: str
) -> None:
    message = refusal(place.guard().approve(place.spec(**changes)))
    where = f"{place.folder}/switchboard.config.json: mcpServers.good.{key}: "
    assert message.startswith(f"Child 'good' may not run: {where}")
    assert why in message


@each_case(
    ("changes", "key", "why"),
    [
        ({"launch": []}, "launch", "names no program"),
        ({"launch": ["node", "index.js"]}, "launch[0]", "absolute path"),
        ({"launch": ["/usr/bin/../bin/node", "x"]}, "launch[0]", "absolute path"),
        ({"launch": ["/bin/sh", "/x.sh"]}, "launch[0]", "is sh"),
        ({"launch": ["/usr/bin/env", "node"]}, "launch[0]", "is env"),
        ({"launch": ["/usr/bin/npx", "-y", "pkg"]}, "launch[0]", "is npx"),
        ({"launch": ["/usr/bin/python3", "-c", "code"]}, "launch[1]", "`-c`"),
        ({"launch": ["/usr/bin/docker", "run", "--privileged", "x"]}, "launch", "`--privileged`"),
        ({"launch": ["/usr/bin/docker", "run", "-i", "image:latest"]}, "launch", "digest"),
        ({"launch": ["/opt/tool"], "replaces": 3}, "launch[0]", "no checksum"),
    ],
    place=Place,
)
def test_an_approval_that_breaks_the_rules_is_refused_too(
    place: Place, changes: dict[str, Any], key: str, why: str
) -> None:
    message = refusal(place.guard(**changes).approve(place.spec()))
    assert message.startswith(f"Child 'good' may not run: {place.file}: children.good.{key}: ")
    assert why in message


def test_an_interpreter_needs_a_script_with_a_checksum(place: Place) -> None:
    only_node = place.guard(launch=[str(place.node)], replaces=0, files=[place.pin(place.node)])
    assert "no checksum of the script" in refusal(only_node.approve(place.spec()))
    other = place.folder / "other.js"
    other.write_text("")
    elsewhere = place.guard(
        launch=[str(place.node)], replaces=0, files=[place.pin(place.node), place.pin(other)]
    )
    assert "does not name the script" in refusal(elsewhere.approve(place.spec()))
    unpinned = place.guard(launch=[str(place.node), str(other)])
    assert "launch[1]: has no checksum" in refusal(unpinned.approve(place.spec()))


@each_case("which", ["node", "script"], place=Place)
def test_a_file_that_changed_since_is_refused_with_both_checksums(place: Place, which: str) -> None:
    path: Path = getattr(place, which)
    path.write_bytes(b"something else")
    message = refusal(place.guard().approve(place.spec()))
    index = 0 if which == "node" else 1
    assert f"{place.file}: children.good.files[{index}].sha256: {path} is not what was approved" in message
    assert place.approval.files[index].sha256[:12] in message


def test_a_file_that_is_gone_is_refused(place: Place) -> None:
    place.script.unlink()
    assert "no such file" in refusal(place.guard().approve(place.spec()))


@each_case(("mode", "why"), [(0o777, "everybody"), (0o4755, "setuid")], place=Place)
def test_rights_are_looked_at_before_anything_is_read(place: Place, mode: int, why: str) -> None:
    place.node.chmod(mode)
    assert why in refusal(place.guard().check(place.spec()))


def test_a_link_put_in_the_place_of_an_approved_file_is_refused(place: Place) -> None:
    twin = place.folder / "twin.js"
    place.script.rename(twin)
    place.script.symlink_to(twin)
    assert "links to a different file than was approved" in refusal(place.guard().check(place.spec()))


def test_a_link_that_was_approved_may_be_followed_to_where_it_led(place: Place) -> None:
    link = place.bin / "linked"
    link.symlink_to(place.node)
    pins = [
        FilePin(path=str(link), sha256=place.approval.files[0].sha256, real=str(place.node)),
        place.approval.files[1],
    ]
    guard = place.guard(launch=[str(link), str(place.script)], files=pins)
    approved = guard.approve(place.spec())
    assert isinstance(approved, ApprovedLaunch)
    assert approved.argv[0] == str(link)
    copy = place.bin / "copy"
    copy.write_bytes(place.node.read_bytes())
    link.unlink()
    link.symlink_to(copy)
    assert "links to a different file" in refusal(guard.approve(place.spec()))


def test_a_link_to_a_shell_is_a_shell(place: Place) -> None:
    link = place.bin / "tool"
    link.symlink_to("/bin/sh")
    guard = place.guard(launch=[str(link)], files=[FilePin(path=str(link), sha256="0" * 64)])
    assert "runs other programs" in refusal(guard.check(place.spec()))


def test_a_copy_of_a_shell_is_a_shell(place: Place) -> None:
    copy = place.bin / "innocent"
    copy.write_bytes(Path("/bin/sh").read_bytes())
    copy.chmod(0o755)
    guard = place.guard(launch=[str(copy)], files=[place.pin(copy)])
    assert "is a script or a shell" in refusal(guard.approve(place.spec()))


def test_a_script_is_not_a_program(place: Place) -> None:
    tool = place.bin / "tool"
    tool.write_text("#!/bin/sh\nid\n")
    tool.chmod(0o755)
    guard = place.guard(launch=[str(tool)], files=[place.pin(tool)])
    assert "is a script or a shell" in refusal(guard.approve(place.spec()))


def test_programs_lie_in_the_places_that_are_named(place: Place) -> None:
    guard = place.guard(GovernanceSettings(mode="governed", places=["bin", str(place.folder / "srv")]))
    assert f"{place.script} is at {place.script}, outside governance.places" in refusal(
        guard.check(place.spec())
    )
    guard = place.guard(GovernanceSettings(mode="governed", places=["."]))
    assert guard.check(place.spec()) is None


def test_a_folder_of_the_workspace_that_leads_out_of_it_is_outside(place: Place) -> None:
    (place.folder / "out").symlink_to("/")
    message = refusal(place.guard().check(place.spec(cwd=str(place.folder / "out"))))
    assert "cwd: is outside the workspace" in message


def test_a_file_exchanged_after_it_was_read_is_noticed(place: Place) -> None:
    guard = place.guard()
    approved = guard.approve(place.spec())
    assert isinstance(approved, ApprovedLaunch)
    assert guard.check_unchanged(place.spec(), approved) is None
    other = place.folder / "other"
    other.write_text("evil()")
    os.replace(other, place.script)
    assert f"{place.script} changed while" in refusal(guard.check_unchanged(place.spec(), approved))


def test_a_remote_child_is_held_to_its_origin(place: Place) -> None:
    guard = place.guard(kind="http", origin="https://mcp.example.com:443", command="", args=[], launch=[])
    remote = place.spec(kind="http", url="https://mcp.example.com/mcp", command="", args=[], env={}, cwd="/")
    assert guard.check(remote) is None
    elsewhere = structs.replace(remote, url="https://mcp.example.com.evil.example/mcp")
    assert "url: is not what was approved" in refusal(guard.check(elsewhere))
    plain = structs.replace(remote, url="http://mcp.example.com:443/mcp")
    assert "not encrypted" in refusal(guard.check(plain))


@each_case(
    ("word", "pattern", "fitting"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("anything", "*", True),
        ("", "*", True),
        ("-flag", "*", False),
        ("--root=/x", "--root=*", True),
        ("--root", "--root=*", False),
        ("a*b", "a\\*b", True),
        ("axb", "a\\*b", False),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("a\nb", "a*b", True),
    ],
)
def test_patterns_of_arguments(word: str, pattern: str, fitting: bool) -> None:
    assert fits(word, pattern) is fitting


def test_every_rule_says_what_it_is_for() -> None:
    assert all(rule.__doc__ for rule in LAUNCH_RULES)


@pytest.mark.parametrize("how", WAYS)
@each_case("name", ["package/lib/a.js", "package/__pycache__/a.pyc", "other/index.js"], place=Place)
def test_files_beside_a_pinned_package_are_writable_by_their_owner_only(
    place: Place, how: str, name: str
) -> None:
    modules = place.folder / "node_modules"
    for file in ("package/server.js", "package/lib/a.js", "package/__pycache__/a.pyc", "other/index.js"):
        (modules / file).parent.mkdir(parents=True, exist_ok=True)
        (modules / file).write_text("x")
    files = [place.pin(path) for path in (place.node, modules / "package" / "server.js", modules / "package")]
    files.append(FilePin(path=str(modules), sha256=hash_packages(str(modules)).sha256, installed=True))
    guard = place.guard(launch=[str(place.node), files[1].path], files=files)
    assert isinstance(guard.approve(place.spec()), ApprovedLaunch)
    OPENINGS[how](modules / name)
    message = refusal(guard.approve(place.spec()))
    assert f"contains {modules / name}, which " in message


@each_case("original", ["/usr/bin/perl", "/usr/bin/env", "/usr/bin/prlimit", "/usr/bin/sed"], place=Place)
def test_a_copy_of_a_program_that_runs_others_is_known_under_any_name(place: Place, original: str) -> None:
    copy = place.bin / "innocent"
    copy.write_bytes(Path(original).read_bytes())
    copy.chmod(0o755)
    guard = place.guard(launch=[str(copy)], files=[place.pin(copy)])
    assert "under another name, which runs other programs" in refusal(guard.approve(place.spec()))


@each_case(
    "path",
    [
        "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1", "/lib/ld-linux.so.2", "/lib/ld-2.31.so",
        "/usr/bin/ld.so", "/lib/ld-linux-aarch64.so.1", "/lib64/ld64.so.2", "/usr/bin/x86_64-linux-gnu-gcc-12",
        "/usr/bin/linux64", "/usr/bin/x86_64", "/usr/bin/prlimit", "/usr/bin/choom", "/usr/bin/faketime",
        "/usr/bin/gcc-12", "/usr/bin/c99", "/usr/bin/vim.basic", "/usr/bin/systemd-run", "/usr/bin/tclsh8.6",
    ],
place=Place)  # fmt: skip
def test_wrappers_and_loaders_are_known_by_their_real_names(place: Place, path: str) -> None:
    assert "which runs other programs" in refusal(place.guard(launch=[path, "x"]).check(place.spec()))
