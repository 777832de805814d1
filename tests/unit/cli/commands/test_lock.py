from __future__ import annotations

from switchboard_mcp.cli.commands.lock import Difference, fold_changes


def test_what_changed_alike_in_many_tools_is_told_once_and_nothing_is_left_out() -> None:
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
