from __future__ import annotations

from switchboard_mcp.children.health import GOVERNED_START_LIMIT_MS, health_rules
from switchboard_mcp.cli.governance.lock import Difference, fold_changes, with_first_start_time
from switchboard_mcp.config.models import Config, Workspace
from switchboard_mcp.config.sections import GovernanceSettings, HealthSettings


def test_a_change_common_to_many_tools_is_listed_once_and_no_change_is_missing() -> None:
    hint = [Difference("annotations.readOnlyHint: none, now true", tool) for tool in ("a", "b", "c")]
    schema = [Difference("$schema: new", tool) for tool in ("a", "b", "c")]
    pair = [Difference("title: new", tool) for tool in ("a", "b")]
    own = [Difference("The description has other words", "b"), Difference("The instructions have changed")]
    assert fold_changes([*own, *hint, *schema, *pair]) == [
        ("b", ["The description has other words", "title: new"]),
        ("", ["The instructions have changed"]),
        ("a, b, c", ["annotations.readOnlyHint: none, now true", "$schema: new"]),
        ("a", ["title: new"]),
    ]


def test_a_cold_child_has_the_time_of_a_first_start_when_it_is_locked() -> None:
    config = Config(governance=GovernanceSettings(mode="governed"))
    workspace = with_first_start_time(Workspace(folder="/w", config=config, children=[], warnings=[]))
    limit_s = health_rules(workspace.config.health, governed=True).spawn_fail_s
    assert limit_s > GOVERNED_START_LIMIT_MS / 1000
    assert limit_s >= config.timeouts.child_spawn_ms / 1000
    assert workspace.written_config == config  # what was approved
    own = Config(governance=GovernanceSettings(mode="governed"), health=HealthSettings(spawn_fail_ms=1_000))
    assert with_first_start_time(Workspace(folder="/w", config=own, children=[], warnings=[])).config == own
