"""A config that changes while Switchboard serves: it counts at once, hosts hear of it, and no answer is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from tests.e2e.host import Host, switchboard
from tests.e2e.stress import server_of, tree, until
from tests.e2e.workspaces import PYTHON, REPO, add_child, configure, write_child

CHANGED = "notifications/tools/list_changed"
CALLS = int(os.environ.get("SWITCHBOARD_RELOAD_CALLS", "1000"))


def holding(label: str) -> list[str]:
    return [*PYTHON, str(REPO / "tests" / "children" / "holding.py"), label]


def begin(workspace: Path, *args: str) -> Host:
    host = switchboard(workspace, *args)
    host.initialize()
    return host


def says(host: Host, suite: str, message: str = "hi") -> str:
    text: str = host.call(suite, "hold", message=message)["content"][0]["text"]
    return text


def hold(host: Host, suite: str, message: str, until: Path) -> int | str:
    """Begin a call that is answered when there is such a file."""
    call = {"action": "call", "subtool": "hold", "args": {"message": message, "until": str(until)}}
    return host.ask("tools/call", {"name": suite, "arguments": call})


def put(path: Path, content: object) -> None:
    """As editors do it: another file, then in its place."""
    fresh = path.with_name(path.name + "~")
    fresh.write_text(content if isinstance(content, str) else json.dumps(content))
    fresh.replace(path)


def holders(host: Host) -> dict[int, str]:
    """The labels of the children that run, by their process."""
    found = {}
    for process in tree(server_of(host)):
        try:
            words = process.cmdline()
        except psutil.Error:  # it has just gone
            continue
        if len(words) > 1 and words[-2].endswith("holding.py"):
            found[process.pid] = words[-1]
    return found


def test_a_child_that_is_added_is_listed_and_can_be_called(workspace: Path) -> None:
    with begin(workspace) as host:
        assert host.tool_names() == []
        add_child(workspace, "late", holding("a"))
        host.notification(CHANGED)
        assert host.tool_names() == ["late_suite"]
        assert says(host, "late_suite") == "a:hi"
        assert "config.reloaded" in host.stderr


def test_a_changed_description_of_the_workspace_is_listed_and_the_child_keeps_running(
    workspace: Path,
) -> None:
    add_child(workspace, "kid", holding("a"))
    with begin(workspace) as host:
        assert says(host, "kid_suite") == "a:hi"
        process = set(holders(host))
        own = workspace / "mcp-descriptions.json"
        for text in ("Holds what you say.", "Holds it longer."):
            put(own, {"mcps": {"kid": {"switchboard": text}}})
            host.notification(CHANGED)
            (tool,) = host.result("tools/list")["tools"]
            assert tool["description"].startswith(text)
        own.unlink()
        host.notification(CHANGED)
        (tool,) = host.result("tools/list")["tools"]
        assert "Holds" not in tool["description"]
        assert set(holders(host)) == process


def test_a_child_that_is_removed_is_gone_with_its_process(workspace: Path) -> None:
    path = add_child(workspace, "kid", holding("a"))
    with begin(workspace) as host:
        says(host, "kid_suite")
        assert holders(host)
        path.unlink()
        host.notification(CHANGED)
        assert host.tool_names() == []
        assert "Unknown tool" in host.error("tools/call", {"name": "kid_suite", "arguments": {}})["message"]
        until(lambda: not holders(host), "the end of its process")


def test_a_child_that_is_changed_is_exchanged_and_the_others_stay_as_they_are(workspace: Path) -> None:
    add_child(workspace, "kid", holding("a"))
    add_child(workspace, "other", holding("o"))
    with begin(workspace) as host:
        assert says(host, "kid_suite") == "a:hi"
        assert says(host, "other_suite") == "o:hi"
        other = next(pid for pid, label in holders(host).items() if label == "o")
        add_child(workspace, "kid", holding("b"))
        host.notification(CHANGED)
        assert says(host, "kid_suite") == "b:hi"
        until(lambda: len(holders(host)) == 2, "the end of the old one")
        assert holders(host)[other] == "o"


def test_a_call_under_way_ends_where_it_began_while_new_ones_go_to_the_new_child(
    workspace: Path, tmp_path: Path
) -> None:
    add_child(workspace, "kid", holding("a"))
    with begin(workspace) as host:
        says(host, "kid_suite")
        slow = hold(host, "kid_suite", "slow", tmp_path / "now")
        add_child(workspace, "kid", holding("b"))
        host.notification(CHANGED)
        assert says(host, "kid_suite") == "b:hi"
        (tmp_path / "now").touch()
        assert host.answer(slow)["result"]["content"][0]["text"] == "a:slow"
        until(lambda: len(holders(host)) == 1, "the end of the old one")


def test_a_config_that_cannot_be_used_is_refused_and_the_old_one_stays(workspace: Path) -> None:
    add_child(workspace, "kid", holding("a"))
    config = configure(workspace, {"suites": {"kid": {"suiteName": "tools"}}})
    with begin(workspace) as host:
        assert says(host, "tools") == "a:hi"
        put(config, '{"suites": {"kid": {"suiteNam": "x"}}}')
        until(lambda: "config.refused" in host.stderr, "the refusal")
        assert "suites.kid.suiteNam" in host.stderr
        assert says(host, "tools") == "a:hi"
        put(config, {"suites": {"kid": {"suiteName": "better"}}})
        host.notification(CHANGED)
        assert host.tool_names() == ["better"]
        assert len(holders(host)) == 1  # the same process, under another name


def test_a_child_whose_file_cannot_be_read_stays_as_it_was(workspace: Path) -> None:
    path = add_child(workspace, "kid", holding("a"))
    with begin(workspace) as host:
        says(host, "kid_suite")
        put(path, "{ half")
        until(lambda: "config.warning" in host.stderr, "the warning")
        assert says(host, "kid_suite", "still") == "a:still"
        write_child(workspace, "kid", {"name": "kid", "command": {"cmd": "true"}, "disabled": True})
        host.notification(CHANGED)
        assert host.tool_names() == []


def test_what_only_counts_at_a_start_is_named_and_the_rest_counts(workspace: Path) -> None:
    add_child(workspace, "kid", holding("a"))
    config = configure(workspace, {})
    with begin(workspace) as host:
        put(config, {"mail": {"enabled": True}, "find": {"enabled": True}})
        host.notification(CHANGED)
        assert host.tool_names() == ["kid_suite", "switchboard_suite"]
        assert "config.restart_needed" in host.stderr
        assert "mail" in host.stderr.split("config.restart_needed")[1]
        found = host.call("switchboard_suite", "status")["structuredContent"]
        assert [child["child"] for child in found["children"]] == ["kid"]


def test_changed_rules_count_for_the_next_call(workspace: Path) -> None:
    add_child(workspace, "kid", holding("a"))
    config = configure(workspace, {})
    with begin(workspace) as host:
        says(host, "kid_suite")
        put(config, {"suites": {"kid": {"expose": {"deny": ["hold"]}}}})
        host.notification(CHANGED)
        told = host.failure("kid_suite", action="call", subtool="hold", args={"message": "x"})
        assert told["code"] == "subtool_denied"


def test_without_reload_nothing_is_watched(workspace: Path) -> None:
    add_child(workspace, "kid", holding("a"))
    with begin(workspace, "--no-reload") as host, switchboard(workspace) as other:
        other.initialize()
        add_child(workspace, "late", holding("b"))
        other.notification(CHANGED)
        assert host.tool_names() == ["kid_suite"]


def test_no_answer_is_lost_while_children_come_change_and_go(workspace: Path, tmp_path: Path) -> None:
    """A thousand calls under way at once, on children that are added, changed and removed meanwhile."""
    kids, rounds = 4, 10
    for number in range(kids):
        add_child(workspace, f"kid{number}", holding("v0"))
    config = configure(workspace, {})
    with begin(workspace) as host:
        for number in range(kids):
            says(host, f"kid{number}_suite")
        asked: dict[int | str, str] = {}
        for step in range(rounds):
            for index in range(CALLS // rounds):
                message = f"{step}.{index}"
                asked[hold(host, f"kid{index % 3}_suite", message, tmp_path / "now")] = message
            disturb(workspace, config, step)
            until(lambda: host.stderr.count("config.reloaded") > step, "the change")  # noqa: B023
            assert says(host, "kid0_suite", "meanwhile").endswith(":meanwhile")
        assert not [told for told in host.heard if told.json.get("id") in asked]  # all are under way
        (tmp_path / "now").touch()
        texts = {id: str(host.answer(id)["result"]["content"][0]["text"]) for id in asked}
        assert {id: text.partition(":")[2] for id, text in texts.items()} == asked
        assert len({text.partition(":")[0] for text in texts.values()}) >= 5  # several runs have answered
        until(lambda: len(holders(host)) <= kids - 1, "the end of those that were exchanged")
        assert "internal" not in host.stderr


def disturb(workspace: Path, config: Path, step: int) -> None:
    """Change a child that is in use, remove one, or something else."""
    if step == 4:
        (workspace / "mcps" / "kid3" / ".mcp.json").unlink()
    elif step % 2 == 0:
        add_child(workspace, f"kid{step % 3}", holding(f"v{step + 1}"))
    elif step % 4 == 1:
        add_child(workspace, f"extra{step}", holding("extra"))
    else:
        put(config, {"introspection": {"budgetTokens": 1000 + step}, "limits": {"concurrent": 5000 + step}})
