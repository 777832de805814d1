"""Every setting that is not the developer's to decide is refused once it differs from its approval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect, structs

from switchboard_mcp.config.files.approvals import Approvals, read_approvals, write_approvals
from switchboard_mcp.config.gate import Condition, GateRule
from switchboard_mcp.config.models import (
    SETTING_OWNERS,
    ChildSpec,
    Config,
    SuiteSettings,
    Workspace,
    sandbox_settings_of,
)
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.gateway.factory import govern_workspace
from switchboard_mcp.policy.approved_settings import approve_settings, find_written_secret, section_statuses
from tests.cases import each_case
from tests.unit.policy.launch.launching import ENVIRON, Place

GOVERNED = {"mode": "governed"}


PLAIN: dict[type, Any] = {
    inspect.BoolType: True,
    inspect.StrType: "changed",
    inspect.FloatType: 0.5,
    inspect.AnyType: {"changed": 1},
    inspect.CustomType: {"command": "changed"},  # an entry of `mcpServers`
}


# What must be written in them beside the setting in question.
SMALLEST: dict[type, dict[str, Any]] = {GateRule: {"deny": True}, Condition: {"present": True}}


def is_valid(value: object, model: type) -> bool:
    try:
        msgspec.convert(value, model)
    except msgspec.ValidationError:
        return False
    return True


def samples(kind: inspect.Type, default: object = None) -> Iterator[Any]:
    """JSON values of a type that differ from its default: at least one for every setting in it."""
    if isinstance(kind, inspect.IntType):
        low = int(kind.ge or 0)
        yield low if low != default else low + 1
    elif type(kind) in PLAIN:
        yield PLAIN[type(kind)] if PLAIN[type(kind)] != default else False
    elif isinstance(kind, inspect.LiteralType):
        yield from (value for value in kind.values if value != default)
    elif isinstance(kind, inspect.ListType):
        yield from ([value] for value in samples(kind.item_type))
    elif isinstance(kind, inspect.DictType):
        yield from ({"changed": value} for value in samples(kind.value_type))
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from samples(one, default) if not isinstance(one, inspect.NoneType) else ()
    elif isinstance(kind, inspect.StructType):
        yield from struct_samples(kind)
    else:
        raise AssertionError(f"no samples for {kind}")


def struct_samples(kind: inspect.StructType) -> Iterator[dict[str, Any]]:
    """One sample for every value of every setting in it."""
    required = {field.encode_name: next(samples(field.type)) for field in kind.fields if field.required}
    required |= SMALLEST.get(kind.cls, {})
    for field in kind.fields:
        for value in samples(field.type, field.default):
            sample = {**required, field.encode_name: value}
            if kind.cls not in SMALLEST or is_valid(sample, kind.cls):
                yield sample


def settings(model: type, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every setting of a model: the row of its owner, its key in a file, and another value of it."""
    kind = inspect.type_info(model)
    assert isinstance(kind, inspect.StructType)
    for field in kind.fields:
        if f"{prefix}{field.name}" != "suites":
            for value in samples(field.type, field.default):
                # The workspaces below are governed, so its change is back to open mode.
                yield (
                    f"{prefix}{field.name}",
                    field.encode_name,
                    {"mode": "open"} if value == GOVERNED else value,
                )


SECTIONS = [pytest.param(*row, id=f"{row[1]}={row[2]}"[:60]) for row in settings(Config)]
SUITE = [pytest.param(*row, id=f"{row[1]}={row[2]}"[:60]) for row in settings(SuiteSettings, "suites.")]


def workspace(place: Place, document: dict[str, Any], *children: ChildSpec) -> Workspace:
    governance = {**GOVERNED, **document.get("governance", {})}
    config = msgspec.convert({**document, "governance": governance}, Config)
    source = str(place.folder / "switchboard.config.json")
    return Workspace(
        folder=str(place.folder), config=config, children=list(children), warnings=[], source=source
    )


def approve(place: Place, governed: Workspace) -> None:
    sandbox = sandbox_settings_of("good", governed.config)
    approvals = Approvals(children={"good": structs.replace(place.approval, sandbox=sandbox)})
    write_approvals(place.file, approve_settings(approvals, section_statuses(governed, approvals)))


def refusal(governed: Workspace) -> Failure:
    with pytest.raises(SwitchboardError) as caught:
        govern_workspace(governed, ENVIRON)
    return caught.value.failure


def test_every_setting_has_an_owner_and_none_is_left_over() -> None:
    rows = {*Config.__struct_fields__} - {"suites"}
    rows |= {f"suites.{name}" for name in SuiteSettings.__struct_fields__}
    assert rows == set(SETTING_OWNERS)


@each_case(("row", "section", "value"), SECTIONS, place=Place)
def test_a_setting_that_is_changed_after_its_approval_refuses_the_start(
    place: Place, row: str, section: str, value: Any
) -> None:
    before, after = workspace(place, {}), workspace(place, {section: value})
    approve(place, before)
    if SETTING_OWNERS[row] == "developer":
        govern_workspace(after, ENVIRON)
        return
    if (section, value) == ("audit", {"enabled": False}):
        assert "audit.enabled" in refusal(after).message
        return
    for approved, written in ((before, after), (after, before)):  # set, changed back, or removed
        approve(place, approved)
        if approved.config.governance.mode == "governed":
            govern_workspace(approved, ENVIRON)
        problem = refusal(written)
        assert problem.code == "settings_not_approved"
        assert section in problem.message
        assert str(written.source) in problem.message
        assert place.file in problem.message
        assert "`switchboard approve --settings" in str(problem.hint)


@each_case(("row", "name", "value"), SUITE, place=Place)
def test_a_setting_of_a_suite_that_is_changed_after_its_approval_makes_its_child_absent(
    place: Place, row: str, name: str, value: Any
) -> None:
    before = workspace(place, {}, place.spec())
    after = workspace(place, {"suites": {"good": {name: value}}}, place.spec())
    for approved, written in ((before, after), (after, before)):
        approve(place, approved)
        allowed = govern_workspace(approved, ENVIRON)
        judged = govern_workspace(written, ENVIRON)
        assert allowed is not None
        assert judged is not None
        assert [spec.name for spec in allowed.workspace.children] == ["good"]
        if SETTING_OWNERS[row] == "developer":
            assert judged.workspace.children
            continue
        assert judged.workspace.children == []
        assert "good" not in judged.workspace.config.suites  # so no middleware of it is loaded
        problem = judged.workspace.absent["good"]
        assert problem.code == "child_not_allowed"
        assert f"{written.source}: suites.good" in problem.message
        assert "`switchboard approve good`" in str(problem.hint)


def test_settings_at_their_defaults_need_no_approval(place: Place) -> None:
    write_approvals(place.file, Approvals(children={"good": place.approval}))
    governed = govern_workspace(workspace(place, {}, place.spec()), ENVIRON)
    assert governed is not None
    assert governed.workspace.children


def test_approvals_without_settings_are_answered_with_the_command_to_run(place: Place) -> None:
    write_approvals(place.file, Approvals(children={"good": place.approval}))
    problem = refusal(workspace(place, {"http": {"port": 1}, "limits": {"burst": 1}}))
    assert "limits (not approved), http (not approved)" in problem.message
    assert "version that did not approve settings" in str(problem.hint)
    assert "`switchboard approve --settings`" in str(problem.hint)


def test_a_config_that_leaves_governed_mode_is_refused_while_its_settings_are_approved(place: Place) -> None:
    approve(place, workspace(place, {}))
    left = structs.replace(workspace(place, {}), config=Config())
    assert "governance.mode is `open`" in refusal(left).message
    without = structs.replace(read_approvals(place.file), settings={})
    write_approvals(place.file, without)
    assert govern_workspace(left, ENVIRON) is None


def test_suite_settings_of_a_child_that_is_gone_are_unused_and_in_nobodys_way(place: Place) -> None:
    approve(place, workspace(place, {"suites": {"old": {"redactArgs": ["pin"]}}}, place.spec()))
    governed = workspace(place, {}, place.spec())
    states = {status.name: status.state for status in section_statuses(governed, read_approvals(place.file))}
    assert states["suites.old"] == "unused"
    judged = govern_workspace(governed, ENVIRON)
    assert judged is not None
    assert judged.workspace.children


@each_case(
    ("document", "key"),
    [
        ({"http": {"tokens": {"ada": "s3cret"}}}, "http.tokens.ada"),
        ({"http": {"tokens": {"ada": {"token": "s3cret"}}}}, "http.tokens.ada.token"),
        ({"http": {"tokens": {"ada": "${ADA:-s3cret}"}}}, "http.tokens.ada"),
        ({"http": {"tokens": {"ada": {"token": "${ADA}", "profile": "few", "dashboard": "read"}}}}, ""),
        ({"http": {"tokens": {"ada": "${ADA}"}, "queryToken": True}, "ask": {"maxTokens": 5}}, ""),
        ({"bus": {"url": "redis://ada:s3cret@redis.example"}}, "bus.url"),
        ({"middleware": [{"use": "x", "options": {"password": "s3cret-word"}}]}, "middleware"),
        ({"suites": {"kid": {"middleware": [{"use": "x", "options": {"apiKey": "s3cret-word"}}]}}}, "suites.kid"),
    ],
place=Place)  # fmt: skip
def test_a_secret_that_is_written_out_is_found_before_its_checksum_is_in_git(
    place: Place, document: dict[str, Any], key: str
) -> None:
    found = find_written_secret(section_statuses(workspace(place, document), Approvals()))
    assert found.startswith(key) if key else not found
