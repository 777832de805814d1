from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from switchboard_mcp.config.files.approvals import (
    Approval,
    Approvals,
    FilePin,
    approvals_path,
    path_variables,
    read_approvals,
    render,
    write_approvals,
)
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case
from tests.conftest import published_schema

APPROVALS = Approvals(
    children={
        "zoo": Approval(kind="http", origin="https://mcp.example.com:443"),
        "git": Approval(
            command="npx",
            args=["-y", "pkg", "*"],
            launch=["/usr/bin/node", "${workspace}/index.js"],
            replaces=2,
            files=[FilePin(path="/usr/bin/node", sha256="a" * 64, real="/opt/node")],
            env=["TOKEN"],
            env_values={"NODE_OPTIONS": "--no-warnings"},
        ),
    }
)


def test_written_values_are_read_back(tmp_path: Path) -> None:
    path = approvals_path(str(tmp_path))
    assert path.endswith("switchboard.approvals.json")
    write_approvals(path, APPROVALS)
    assert read_approvals(path) == APPROVALS
    assert [entry.name for entry in tmp_path.iterdir()] == ["switchboard.approvals.json"]


def test_the_text_is_sorted_stable_and_fits_the_schema() -> None:
    text = render(APPROVALS)
    turned = Approvals(children=dict(reversed(APPROVALS.children.items())))
    assert render(turned) == text
    assert text.endswith(b"}\n")
    assert list(json.loads(text)["children"]) == ["git", "zoo"]
    jsonschema.validate(json.loads(text), published_schema("approvals"))


LINUX, MAC = "linux-x86_64", "darwin-arm64"
NODE, BREW = (
    Approval(command="node", launch=["/usr/bin/node"]),
    Approval(command="node", launch=["/opt/node"]),
)


def test_each_kind_of_machine_has_its_own_approval_and_keeps_that_of_the_others() -> None:
    linux = APPROVALS.adding("tool", LINUX, NODE)
    both = linux.adding("tool", MAC, BREW)
    for platform, expected in ((LINUX, NODE), (MAC, BREW)):
        found = both.find("tool", platform)
        assert found is not None
        assert (found.key, found.approval) == (f"platforms.{platform}.tool", expected)
    assert both.find("tool", "linux-aarch64") is None
    assert (both.elsewhere("tool", LINUX), linux.elsewhere("tool", LINUX)) == ([MAC], [])
    assert both.adding("tool", MAC, BREW) == both
    again = both.adding("tool", LINUX, BREW)
    assert again.platforms == {LINUX: {"tool": BREW}, MAC: {"tool": BREW}}
    assert both.names() == {"git", "tool", "zoo"}
    assert both.without("tool") == APPROVALS


def test_an_approval_without_a_kind_holds_until_the_next_approval() -> None:
    found = APPROVALS.find("git", LINUX)
    assert found is not None
    assert found.key == "children.git"
    renewed = APPROVALS.adding("git", LINUX, NODE)
    assert (renewed.find("git", LINUX) or found).approval == NODE
    assert renewed.find("git", MAC) is None


def test_a_remote_child_is_approved_on_every_machine() -> None:
    remote = Approval(kind="http", origin="https://x.example:443")
    approved = APPROVALS.adding("git", LINUX, NODE).adding("git", LINUX, remote)
    assert approved.everywhere("git") == {"": remote}


def test_kinds_are_written_in_order_and_fit_the_schema() -> None:
    one = APPROVALS.adding("b", MAC, BREW).adding("b", LINUX, NODE).adding("a", LINUX, NODE)
    other = APPROVALS.adding("a", LINUX, NODE).adding("b", LINUX, NODE).adding("b", MAC, BREW)
    assert render(one) == render(other)
    jsonschema.validate(json.loads(render(one)), published_schema("approvals"))
    assert msgspec.json.decode(render(one), type=Approvals) == one


def test_nothing_is_approved_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_approvals(str(tmp_path / "nothing.json")) == Approvals()


@each_case(
    ("text", "result"),
    [
        ('{"children": {"a": {"lunch": []}}}', "children.a.lunch: unknown key; did you mean `launch`?"),
        ('{"children": {"a": {"files": [{"path": "/x"}]}}}', "children.a.files[0].sha256: missing"),
        ('{"children": {"a": {"files": [{"path": "/x", "sha256": "short"}]}}}', "sha256"),
        (
            '{"children": {"a": {"replaces": 1}}}',
            "children.a.replaces: is greater than the number of `args`.",
        ),
        ('{"version": 2}', "version"),
        ("{", "switchboard.approvals.json"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, text: str, result: str) -> None:
    path = tmp_path / "switchboard.approvals.json"
    path.write_text(text)
    with pytest.raises(SwitchboardError) as caught:
        read_approvals(str(path))
    assert caught.value.failure.code == "config_invalid"
    assert str(path) in caught.value.failure.message
    assert result in caught.value.failure.message


def test_paths_of_workspace_and_home_read_the_same_everywhere() -> None:
    here, there = (
        path_variables("/work/a", {"HOME": "/home/ada/"}),
        path_variables("/srv/b", {"HOME": "/root"}),
    )
    for path, written in [
        ("/work/a/x.js", "${workspace}/x.js"),
        ("/home/ada/.npm/x.js", "${home}/.npm/x.js"),
        ("/usr/bin/node", "/usr/bin/node"),
        ("/work/ab", "/work/ab"),
    ]:
        assert here.shorten(path) == written
        assert here.fill(written) == path
    assert there.fill("${workspace}/x.js") == "/srv/b/x.js"
    assert there.fill("${workspaces}/x.js") == "${workspaces}/x.js"


def test_without_a_home_nothing_is_in_it() -> None:
    assert path_variables("/work", {}).fill("${home}/x") == "${home}/x"


def test_the_schema_refuses_what_reading_refuses() -> None:
    wrong = {"children": {"a": {"files": [{"path": "/x", "sha256": "short"}]}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, published_schema("approvals"))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Approvals)
