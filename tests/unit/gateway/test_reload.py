"""What becomes of hosts, calls and settings when the config changes under a gateway that serves."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from switchboard_mcp.children.registry import ChildRegistry
from switchboard_mcp.config.models import (
    RELOAD,
    ChildSpec,
    Config,
    ConfigWarning,
    Expose,
    HttpSettings,
    IntrospectionSettings,
    SuiteSettings,
    Timeouts,
    Workspace,
)
from switchboard_mcp.config.sections import MailSettings, Profile, Token
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.gateway.factory import Runtime, apply_views
from switchboard_mcp.gateway.reload import apply, migrate_sessions
from tests.cases import each_case
from tests.unit.gateway.board import FOLDER, Board, FakeChild, Json, open_board

CHANGED = "notifications/tools/list_changed"
RESOURCES: dict[str, list[Json]] = {"resources/list": [{"uri": "x://a", "name": "a"}]}


def workspace(config: Config | None = None, *children: ChildSpec, **more: object) -> Workspace:
    fresh = Workspace(folder=FOLDER, config=config or Config(), children=list(children), warnings=[])
    return replace(fresh, **more)


def spec(name: str, *args: str, source: str = "test") -> ChildSpec:
    return ChildSpec(name=name, source=source, command=name, args=list(args))


def runtime(board: Board, current: Workspace, profile: str = "") -> Runtime:
    registry = ChildRegistry(current, board.services)
    board.children.update(registry.children)
    gateway = board.gateway
    apply_views(gateway, current, board.services, profile, None)
    return Runtime(current, registry, gateway, board.services, profile)


def exchange(board: Board, old: FakeChild, **how: object) -> FakeChild:
    """Another child in the place of one, as `ChildRegistry.apply` does it."""
    new = board.child(old.name, **how)  # type: ignore[arg-type]  # as the test says
    old.retire(new)
    old_views = board.gateway.session_views()
    board.gateway.replace_children(board.children.values(), board.config)
    migrate_sessions(board.gateway, old_views, frozenset({old.name}))
    board.settle()
    return new


# --- hosts that stay ----------------------------------------------------------------------------------


def test_a_call_under_way_is_answered_by_the_old_child_and_the_next_by_the_new(board: Board) -> None:
    old = board.child()
    host = board.host()
    first = host.call()
    new = exchange(board, old)
    assert host.heard(CHANGED)
    second = host.call()
    new.server.give(new.server.last(), {"content": [], "by": "new"})
    old.server.give(old.server.last(), {"content": [], "by": "old"})
    assert (host.result(first)["by"], host.result(second)["by"]) == ("old", "new")


def test_a_late_call_to_a_replaced_child_goes_to_its_successor(board: Board) -> None:
    old = board.child()
    host = board.host()
    suite = board.gateway.suites["kid_suite"]
    new = exchange(board, old)
    board.loop.run_until_complete(old.close())
    # As one that waited in a queue before the child: it still knows the old suite.
    host.session.tools["kid_suite"] = suite
    call_id = host.call()
    new.server.give(new.server.last(), {"content": []})
    assert host.result(call_id) == {"content": []}
    assert old.runs == []


def test_a_child_works_while_anybody_waits_for_it(board: Board) -> None:
    kid = board.child()
    host = board.host()
    seen = [kid.busy]
    host.call()
    seen.append(kid.busy)
    kid.server.give(kid.server.last(), {"content": []})
    assert [*seen, kid.busy] == [False, True, False]


def test_a_resource_that_is_followed_is_followed_at_the_new_child(board: Board) -> None:
    old = board.child(lists=RESOURCES, capabilities={"tools": {}, "resources": {"subscribe": True}})
    host = board.host()
    host.call()
    uri = "switchboard://kid/x://a"
    host.get("resources/subscribe", {"uri": uri})
    new = exchange(board, old, lists=RESOURCES, capabilities={"tools": {}, "resources": {"subscribe": True}})
    assert [message["params"]["uri"] for message in old.server.requests("resources/unsubscribe")] == ["x://a"]
    assert [message["params"]["uri"] for message in new.server.requests("resources/subscribe")] == ["x://a"]
    new.server.notify("notifications/resources/updated", {"uri": "x://a"})
    assert host.notifications("notifications/resources/updated") == [{"uri": uri}]


def test_hosts_that_see_nothing_else_hear_nothing(board: Board) -> None:
    kid = board.child()
    host = board.host()
    host.call()
    old_views = board.gateway.session_views()
    board.gateway.replace_children(board.children.values(), board.config)
    migrate_sessions(board.gateway, old_views, frozenset())
    assert not host.heard(CHANGED)
    assert board.gateway.suites["kid_suite"].child is kid


def test_a_suite_that_is_as_it_was_keeps_what_it_remembers(board: Board) -> None:
    board.child()
    board.child("other")
    before = dict(board.gateway.all_suites)
    board.suites["other"] = SuiteSettings(expose=Expose(deny=["echo"]))
    fresh = board.gateway.replace_children(board.children.values(), board.config)
    assert list(fresh) == ["other_suite"]
    assert board.gateway.all_suites["kid_suite"] is before["kid_suite"]


def test_a_changed_profile_counts_for_hosts_that_are_here(board: Board) -> None:
    token = {"ada": Token(token="x" * 20, profile="p")}
    current = workspace(
        Config(profiles={"p": Profile()}, http=HttpSettings(tokens=dict(token))), spec("docs"), spec("shell")
    )
    running = runtime(board, current)
    ada = board.host(principal="ada")
    assert len(ada.get("tools/list")["tools"]) == 2
    apply(running, replace(current, config=replace(current.config, profiles={"p": Profile(suites=["docs"])})))
    assert ada.heard(CHANGED)
    assert [tool["name"] for tool in ada.get("tools/list")["tools"]] == ["docs_suite"]


def test_a_token_that_was_taken_away_shows_nothing_until_the_next_start(board: Board) -> None:
    current = workspace(
        Config(
            profiles={"p": Profile()}, http=HttpSettings(tokens={"ada": Token(token="x" * 20, profile="p")})
        ),
        spec("docs"),
    )
    running = runtime(board, current)
    ada = board.host(principal="ada")
    apply(running, replace(current, config=Config()))
    assert ada.get("tools/list")["tools"] == []
    assert len(board.host().get("tools/list")["tools"]) == 1


# --- children and settings ----------------------------------------------------------------------------


def test_children_that_are_as_they_were_stay_and_the_others_are_exchanged(board: Board) -> None:
    current = workspace(None, spec("same"), spec("changed"), spec("gone"))
    running = runtime(board, current)
    before = dict(running.registry.children)
    apply(running, workspace(None, spec("changed", "--new"), spec("late"), spec("same")))
    now = running.registry.children
    assert list(now) == ["changed", "late", "same"]
    assert now["same"] is before["same"]
    assert now["changed"] is not before["changed"]
    assert before["changed"].successor is now["changed"]
    board.settle()


@each_case(
    "config",
    [
        Config(timeouts=Timeouts(rpc_ms=5)),
        Config(suites={"kid": SuiteSettings(rpc_ms=5)}),
        Config(suites={"kid": SuiteSettings(isolation="session")}),
        Config(introspection=IntrospectionSettings(fresh_ms=0)),
    ],
    board=open_board,
)
def test_settings_that_a_child_is_made_with_exchange_it(board: Board, config: Config) -> None:
    running = runtime(board, workspace(None, spec("kid")))
    before = running.registry.children["kid"]
    apply(running, workspace(config, spec("kid")))
    assert running.registry.children["kid"] is not before
    board.settle()


def test_settings_that_count_at_a_start_stay_unchanged(board: Board) -> None:
    running = runtime(board, workspace(None, spec("kid")))
    mail = ChildSpec(name="mail", source="test", key="mail", kind="builtin")
    apply(running, workspace(Config(mail=MailSettings(enabled=True)), spec("kid"), mail))
    assert running.workspace.config.mail.enabled is False
    assert list(running.registry.children) == ["kid"]


def test_a_child_whose_file_became_unreadable_stays(board: Board, tmp_path: Path) -> None:
    source = tmp_path / ".mcp.json"
    source.touch()
    kept, removed = spec("kept", source=str(source)), spec("removed", source=str(tmp_path / "gone"))
    running = runtime(board, workspace(None, kept, removed))
    apply(running, workspace(warnings=[ConfigWarning(str(source), "", "is no JSON. The file is skipped.")]))
    assert list(running.registry.children) == ["kept"]
    board.settle()


def test_a_child_whose_entry_became_incomplete_stays_and_one_that_always_was_is_replaced(
    board: Board, tmp_path: Path
) -> None:
    source = tmp_path / ".mcp.json"
    source.touch()
    whole = spec("kid", source=str(source))
    part = replace(whole, command="", incomplete="x: command: is missing.")
    warnings = [ConfigWarning(str(source), "command", "is missing.")]
    running = runtime(board, workspace(None, whole))
    apply(running, workspace(None, part, warnings=warnings))
    assert running.registry.children["kid"].spec == whole
    running = runtime(board, workspace(None, part))
    described = replace(part, description="more")
    apply(running, workspace(None, described, warnings=warnings))
    assert running.registry.children["kid"].spec == described
    board.settle()


def test_middleware_that_cannot_be_loaded_changes_nothing(board: Board) -> None:
    running = runtime(board, workspace(None, spec("kid")))
    before = running.registry.children["kid"]
    with pytest.raises(SwitchboardError, match="nowhere:thing"):
        apply(running, workspace(Config(middleware=["nowhere:thing"])))
    assert running.registry.children["kid"] is before
    assert list(running.gateway.suites) == ["kid_suite"]


def test_the_same_again_changes_nothing(board: Board) -> None:
    current = workspace(None, spec("kid"))
    running = runtime(board, current)
    view = running.gateway.view
    apply(running, workspace(None, spec("kid")))
    assert running.gateway.view is view


def test_every_setting_says_what_its_change_rebuilds() -> None:
    sections = {path for path in RELOAD if "." not in path}
    assert sections == set(Config.__struct_fields__)
    for path in RELOAD.keys() - sections:
        section, _, name = path.partition(".")
        settings = SuiteSettings() if section == "suites" else getattr(Config(), section)
        assert name in settings.__struct_fields__
