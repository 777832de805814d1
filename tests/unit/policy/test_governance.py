from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from switchboard_mcp.config.files.approvals import Approvals, write_approvals
from switchboard_mcp.config.models import ChildSpec, Config, Workspace
from switchboard_mcp.config.sections import GovernanceSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.policy.governance import ENABLED, govern, is_enabled
from tests.acl import OPENINGS, WAYS
from tests.cases import each_case
from tests.unit.policy.launch.launching import ENVIRON, Place


def workspace(place: Place, *children: ChildSpec, **governance: Any) -> Workspace:
    write_approvals(place.file, Approvals(children={"good": place.approval}))
    return Workspace(
        folder=str(place.folder),
        config=Config(governance=GovernanceSettings(mode="governed", **governance)),
        children=list(children),
        warnings=[],
        source=str(place.folder / "switchboard.config.json"),
    )


def test_a_child_exists_if_it_is_approved_and_its_launch_passes(place: Place) -> None:
    children = [place.spec(), place.spec(name="other"), place.spec(name="bad", args=["; rm -rf /"])]
    posture = govern(workspace(place, *children), ENVIRON)
    assert [spec.name for spec in posture.workspace.children] == ["good"]
    codes = {name: problem.code for name, problem in posture.workspace.absent.items()}
    assert codes == {"other": "child_not_allowed", "bad": "launch_refused"}
    warnings = [str(warning) for warning in posture.workspace.warnings]
    assert all(
        line.startswith(f"{place.folder}/switchboard.config.json: mcpServers.good: Child")
        for line in warnings
    )
    assert "`switchboard approve other`" in warnings[0]


def test_taking_it_twice_changes_nothing(place: Place) -> None:
    once = govern(workspace(place, place.spec(), place.spec(name="other")), ENVIRON).workspace
    assert govern(once, ENVIRON).workspace == once


def test_a_part_of_switchboard_needs_no_approval(place: Place) -> None:
    built_in = ChildSpec(name="mail", source="", kind="builtin")
    assert govern(workspace(place, built_in), ENVIRON).workspace.children == [built_in]


def test_a_variable_that_is_not_set_yet_does_not_make_a_child_absent(place: Place) -> None:
    waiting = place.spec(args=["index.js", "--root", "${NOT_SET}"])
    assert govern(workspace(place, waiting), ENVIRON).workspace.children == [waiting]
    hidden = place.spec(args=["${NOT_SET}", "--root", "data"])
    assert govern(workspace(place, hidden), ENVIRON).workspace.children == []


def test_a_value_from_the_environment_is_judged_as_if_it_were_written(place: Place) -> None:
    spec = place.spec(args=["index.js", "--root", "${ROOT}"])
    assert govern(workspace(place, spec), {**ENVIRON, "ROOT": "/data"}).workspace.children
    posture = govern(workspace(place, spec), {**ENVIRON, "ROOT": "x; rm -rf /"})
    assert "args[2]: contains the shell metacharacter `;`" in posture.workspace.absent["good"].message


@each_case(
    ("value", "on"),
    [("true", True), (" TRUE ", True), ("false", False), ("1", False), ("yes", False), ("", False)],
)
def test_the_switch_is_off_unless_it_says_true(value: str, on: bool) -> None:
    assert is_enabled({ENABLED: value}) is on
    assert is_enabled({}) is False


def test_while_the_switch_is_off_nothing_is_routed_and_it_is_said_why(place: Place) -> None:
    problem = govern(workspace(place, place.spec()), ENVIRON).disabled
    assert problem is not None
    assert problem.code == "governance_disabled"
    assert f"{place.folder}/switchboard.config.json: governance.mode" in problem.message
    assert "SWITCHBOARD_MCP_ENABLED=true" in str(problem.hint)
    assert govern(workspace(place), {**ENVIRON, ENABLED: "true"}).disabled is None


@each_case("name", ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "A B", ""], place=Place)
def test_a_variable_that_changes_what_runs_cannot_be_handed_on(place: Place, name: str) -> None:
    with pytest.raises(SwitchboardError) as caught:
        govern(workspace(place, env=["HOME", name]), ENVIRON)
    assert caught.value.failure.code == "config_invalid"
    assert f"{place.folder}/switchboard.config.json: governance.env[1]:" in caught.value.failure.message


def test_approvals_that_cannot_be_read_stop_the_start(place: Place) -> None:
    governed = workspace(place)
    (place.folder / "switchboard.approvals.json").write_text("{")
    with pytest.raises(SwitchboardError):
        govern(governed, ENVIRON)


@each_case("key", ["env", "args"], place=Place)
def test_the_variables_of_an_entry_are_approved_too(place: Place, key: str) -> None:
    place.approval = structs.replace(place.approval, variables=["TOKEN_OF_GIT"])
    for name, exists in (("TOKEN_OF_GIT", True), ("AWS_SECRET", False)):
        filled = {"env": {"TOKEN": f"${{{name}}}"}, "args": ["index.js", "--root", f"x${{{name}}}"]}
        spec = place.spec(**{key: filled[key]})
        for environ in (ENVIRON, {**ENVIRON, name: "value"}):
            posture = govern(workspace(place, spec), environ)
            assert (not posture.workspace.absent) is exists
            if not exists:
                assert f"references {name}, which is not" in posture.workspace.absent["good"].message


def test_a_variable_with_a_default_is_one_all_the_same(place: Place) -> None:
    place.approval = structs.replace(place.approval, variables=[])
    spec = place.spec(env={"TOKEN": "${AWS_SECRET:-none}"})
    assert govern(workspace(place, spec), ENVIRON).workspace.absent


@each_case(
    "name", ["switchboard.approvals.json", "switchboard.config.json", "switchboard.lock.json"], place=Place
)
def test_files_that_decide_are_writable_by_their_owner_only(place: Place, name: str) -> None:
    governed = workspace(place)
    path = place.folder / name
    path.touch()
    govern(governed, ENVIRON)
    path.chmod(0o666)
    with pytest.raises(SwitchboardError) as caught:
        govern(governed, ENVIRON)
    assert f"{path}: is writable by everybody" in caught.value.failure.message


@pytest.mark.parametrize("how", WAYS)
@each_case(
    "name",
    ["switchboard.config.json", "switchboard.approvals.json", "switchboard.lock.json", "."],
    place=Place,
)
def test_policy_files_that_others_may_write_are_not_relied_on(place: Place, name: str, how: str) -> None:
    for file in ("switchboard.config.json", "switchboard.lock.json"):
        (place.folder / file).write_text("{}")
    governed = workspace(place, place.spec())
    govern(governed, ENVIRON)
    OPENINGS[how](place.folder / name)
    with pytest.raises(SwitchboardError, match="governed mode relies on it"):
        govern(governed, ENVIRON)
