from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from switchboard_mcp.setup.dialects import HostServer, parse_entry
from switchboard_mcp.setup.discovery import discover_servers
from switchboard_mcp.setup.hosts import BY_NAME
from switchboard_mcp.setup.paths import host_paths
from switchboard_mcp.setup.plan import ExistingSetup, Plan, SetupOptions, decide, make_plan
from tests.cases import each_case

NOTHING = ExistingSetup(children={}, names=set())


class World:
    """A home with files of hosts, and what would be planned there."""

    def __init__(self, folder: Path, **files: object) -> None:
        self.home, self.workspace = folder / "home", folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        for host, servers in files.items():
            path = {
                "cursor": ".cursor/mcp.json",
                "warp": ".warp/.mcp.json",
                "windsurf": ".codeium/windsurf/mcp_config.json",
            }[host]
            file = self.home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"mcpServers": servers}))

    def plan(self, present: ExistingSetup = NOTHING, **more: Any) -> Plan:
        folder = str(self.workspace)
        discovery = discover_servers(
            host_paths(folder, {"HOME": str(self.home)}, "linux"), list(BY_NAME), (), named=False
        )
        outcomes, children = decide(discovery, present, folder, share=more.get("share", False))
        wanted = SetupOptions(
            workspace=folder,
            config=os.path.join(folder, "switchboard.config.json"),
            command=["/bin/switchboard", "--workspace", folder],
            environ={},
            **more,
        )
        return make_plan(discovery, outcomes, children, wanted)

    def after(self, plan: Plan, name: str) -> Any:
        return json.loads(next(change.after for change in plan.changes if change.path.endswith(name)))[
            "mcpServers"
        ]


A = {"command": "a"}
B = {"command": "b"}


def test_the_same_server_of_several_hosts_is_one_child(tmp_path: Path) -> None:
    plan = World(tmp_path, cursor={"x": A}, warp={"y": A}).plan()
    assert [child.name for child in plan.children] == ["x"]
    assert {outcome.child for outcome in plan.moving} == {"x"}


def test_a_secret_does_not_fill_a_variable_that_another_server_takes_from_the_environment(
    tmp_path: Path,
) -> None:
    secret, reference = {"API_TOKEN": "s3cret-value-12"}, {"API_TOKEN": "${env:API_TOKEN}"}
    world = World(tmp_path, cursor={"y": {**B, "env": reference}}, warp={"x": {**A, "env": secret}})
    plan = world.plan(secrets="env")
    assert plan.secrets == {"X_API_TOKEN": "s3cret-value-12"}
    envs = {child.name: child.server.env for child in plan.children}
    assert envs == {"x": {"API_TOKEN": "${X_API_TOKEN}"}, "y": {"API_TOKEN": "${API_TOKEN}"}}


@each_case(
    ("other", "differs"),
    [
        (B, "command"),
        ({**A, "args": ["-v"]}, "arguments"),
        ({**A, "env": {"KEY": "1"}}, "variables"),
        ({**B, "args": ["-v"], "env": {"KEY": "1"}}, "command and arguments and variables"),
        ({"url": "https://a.example/mcp"}, "type and command and URL"),
    ],
)
def test_a_second_child_of_the_same_name_is_explained(
    tmp_path: Path, other: dict[str, object], differs: str
) -> None:
    plan = World(tmp_path, cursor={"x": A}, warp={"x": other}).plan()
    assert [outcome.differs for outcome in plan.moving] == ["", differs]


def test_different_servers_of_the_same_name_are_two_children(tmp_path: Path) -> None:
    plan = World(tmp_path, cursor={"x": A}, warp={"x": B}).plan()
    assert sorted(child.name for child in plan.children) == ["x", "x-warp"]


def test_a_child_that_is_there_already_is_not_made_again_and_never_overwritten(tmp_path: Path) -> None:
    world = World(tmp_path, cursor={"x": A, "y": B})
    present = ExistingSetup(children={"mine": HostServer(kind="stdio", command="a")}, names={"mine", "y"})
    plan = world.plan(present)
    assert [child.name for child in plan.children] == ["y-cursor"]
    assert {outcome.child for outcome in plan.moving} == {"mine", "y-cursor"}


def test_a_feature_is_on_if_one_host_uses_it(tmp_path: Path) -> None:
    plan = World(tmp_path, cursor={"x": {**A, "disabled": True}}, windsurf={"x": A}).plan()
    assert [child.server.disabled for child in plan.children] == [False]
    plan = World(
        tmp_path, cursor={"x": {**A, "disabled": True}}, windsurf={"x": {**A, "disabled": True}}
    ).plan()
    assert [child.server.disabled for child in plan.children] == [True]


def test_a_host_that_has_an_entry_for_another_folder_gets_one_of_its_own_name(tmp_path: Path) -> None:
    other = {"command": "switchboard", "args": ["--workspace", "/other"]}
    world = World(tmp_path, cursor={"switchboard": other, "x": A})
    servers = world.after(world.plan(), ".cursor/mcp.json")
    assert servers["switchboard"] == other
    assert servers["switchboard-workspace"]["args"][:2] == ["--workspace", str(world.workspace)]


def test_a_host_that_has_the_entry_already_gets_no_second_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    ours = {"command": "switchboard", "args": ["--workspace", str(world.workspace)]}
    world = World(tmp_path, cursor={"sb": ours, "x": A})
    assert world.after(world.plan(), ".cursor/mcp.json") == {"sb": ours}


def test_a_server_that_is_called_switchboard_and_is_none_moves_like_any_other(tmp_path: Path) -> None:
    world = World(tmp_path, cursor={"switchboard": A})
    present = ExistingSetup(children={}, names={"switchboard"})
    plan = world.plan(present)
    assert [child.name for child in plan.children] == ["switchboard-cursor"]
    assert world.after(plan, ".cursor/mcp.json")["switchboard"]["command"] == "/bin/switchboard"


def test_a_file_that_cannot_be_changed_keeps_its_servers(tmp_path: Path) -> None:
    world = World(tmp_path, warp={"y": B})
    file = world.home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('mcp_servers = { x = { command = "a" } }\n')
    plan = world.plan()
    assert [child.name for child in plan.children] == ["y"]
    assert "config.toml" in plan.problems[0]
    assert not any(change.path.endswith("config.toml") for change in plan.changes)


def test_settings_that_are_there_are_kept(tmp_path: Path) -> None:
    world = World(tmp_path, windsurf={"x": {**A, "disabledTools": ["rm"]}})
    config = world.workspace / "switchboard.config.json"
    config.write_text('{\n  // mine\n  "timeouts": { "rpcMs": 5 }\n}\n')
    plan = world.plan(enable=("mail", "find"))
    after = next(change.after for change in plan.changes if change.path == str(config)).decode()
    assert "// mine" in after
    assert '"deny": ["rm"]' in after
    assert '"mail": {\n    "enabled": true\n  }' in after


def profiles_of(plan: Plan) -> Any:
    change = next(change for change in plan.changes if change.path.endswith("switchboard.config.json"))
    return json.loads(change.after)["profiles"]


def test_each_host_sees_what_it_had_with_the_limits_it_had(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        cursor={"x": A, "y": {**B, "disabledTools": ["rm"]}},
        warp={"x": A},
        windsurf={"x": {**A, "disabled": True}, "y": B},
    )
    plan = world.plan()
    assert sorted(child.name for child in plan.children) == ["x", "y"]
    assert profiles_of(plan) == {
        "cursor": {"expose": {"y": {"deny": ["rm"]}}},
        "warp": {"hide": ["y"]},
        "windsurf": {"hide": ["x"]},
    }
    for name, file in (("cursor", ".cursor/mcp.json"), ("warp", ".warp/.mcp.json")):
        assert world.after(plan, file)["switchboard"]["args"][-2:] == ["--profile", name]
    child = next(change.after for change in plan.changes if change.path.endswith("mcps/x/.mcp.json"))
    assert json.loads(child)["metadata"] == {"hosts": ["cursor", "warp", "windsurf"]}


def test_later_entries_are_hidden_from_earlier_hosts_and_theirs_from_new_ones(
    tmp_path: Path,
) -> None:
    present = ExistingSetup(
        children={"x": HostServer(kind="stdio", command="a"), "added": HostServer(kind="stdio", command="c")},
        names={"x", "added"},
        hosts_of={"x": ["cursor"]},
    )
    world = World(tmp_path, warp={"y": B})
    plan = world.plan(present, hosts_of=present.hosts_of, hidden={"cursor": []})
    assert profiles_of(plan) == {"cursor": {"hide": ["y"]}, "warp": {"hide": ["x"]}}


def test_a_governed_workspace_gets_no_profile_that_says_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, cursor={"x": A})
    config = world.workspace / "switchboard.config.json"
    config.write_text('{"governance": {"mode": "governed"}}')
    plan = world.plan(is_governed=True)
    assert not [change for change in plan.changes if change.path == str(config)]
    assert "--profile" not in world.after(plan, ".cursor/mcp.json")["switchboard"]["args"]
    limited = World(tmp_path / "limited", cursor={"x": {**A, "disabledTools": ["rm"]}}).plan(is_governed=True)
    assert profiles_of(limited) == {"cursor": {"expose": {"x": {"deny": ["rm"]}}}}


def test_two_scopes_of_a_host_have_entries_of_two_names(tmp_path: Path) -> None:
    world = World(tmp_path)
    local = {"projects": {str(world.workspace): {"mcpServers": {"here": A}}}}
    world.home.mkdir()
    user_entry = {"command": "/bin/switchboard", "args": ["--workspace", str(tmp_path / "user")]}
    (world.home / ".claude.json").write_text(json.dumps({"mcpServers": {"switchboard": user_entry}, **local}))
    (world.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"ours": A}}))
    plan = world.plan(includes_user=True, user_workspace=str(tmp_path / "user"))
    user = json.loads(plan_text(plan, str(world.home / ".claude.json")))
    shared = json.loads(plan_text(plan, str(world.workspace / ".mcp.json")))
    names = [
        *user["mcpServers"],
        *user["projects"][str(world.workspace)]["mcpServers"],
        *shared["mcpServers"],
    ]
    assert len(set(names)) == len(names)
    assert all(name.startswith("switchboard") for name in names)


def plan_text(plan: Plan, path: str) -> str:
    return next(change.after.decode() for change in plan.changes if change.path == path)


def test_shared_hosts_have_no_profiles_and_limits_are_those_of_a_child(tmp_path: Path) -> None:
    world = World(tmp_path, cursor={"x": {**A, "disabledTools": ["rm"]}}, warp={"x": A})
    plan = world.plan(share=True)
    assert sorted(child.name for child in plan.children) == ["x", "x-warp"]
    assert plan.profiles == []
    assert "--profile" not in world.after(plan, ".warp/.mcp.json")["switchboard"]["args"]
    config = next(change.after for change in plan.changes if change.path.endswith("switchboard.config.json"))
    assert json.loads(config)["suites"] == {"x": {"expose": {"deny": ["rm"]}}}


ENV = {"SWITCHBOARD_MCP_ENABLED": "true"}


@each_case("name", BY_NAME)
def test_the_entry_of_every_host_can_set_variables(name: str) -> None:
    host = BY_NAME[name]
    rendered = host.render_entry("switchboard", ["/bin/other"], [])
    parsed = parse_entry(host, {**rendered, host.env_key: ENV}, {"workspace": "/w"})
    assert parsed.server is not None, parsed.skip_reason
    assert parsed.server.env == ENV
    assert host.env_key == {"opencode": "environment", "goose": "envs"}.get(name, "env")


def test_entries_of_a_governed_workspace_enable_it_also_those_that_are_there_already(tmp_path: Path) -> None:
    world = World(tmp_path, cursor={"x": A})
    ours = {"command": "/bin/switchboard", "args": ["--workspace", str(world.workspace)], "env": {"OWN": "1"}}
    world = World(tmp_path, warp={"switchboard": ours})
    plan = world.plan(entry_env=ENV)
    assert world.after(plan, ".cursor/mcp.json")["switchboard"]["env"] == ENV
    assert world.after(plan, ".warp/.mcp.json")["switchboard"]["env"] == {"OWN": "1", **ENV}
    for path in (".cursor/mcp.json", ".warp/.mcp.json"):
        change = next(change for change in plan.changes if change.path.endswith(path))
        Path(change.path).write_bytes(change.after)
    assert not world.plan(entry_env=ENV).changes
    assert (
        "env" not in world.after(World(tmp_path, cursor={"x": A}).plan(), ".cursor/mcp.json")["switchboard"]
    )
