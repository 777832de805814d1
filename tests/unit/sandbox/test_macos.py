"""The profile for macOS as text. It has not been run on macOS."""

from __future__ import annotations

from switchboard_mcp.sandbox.macos import macos_profile, quoted


def test_everything_is_denied_first_and_protected_files_last() -> None:
    profile = macos_profile(["/p"], ["/w"], ["/w/.git"], "none")
    lines = profile.splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    write = next(index for index, line in enumerate(lines) if line.startswith("(allow file-write*"))
    deny = lines.index('(deny file-write* (subpath "/w/.git"))')
    assert deny > write
    assert '(subpath "/w")' in lines[write]
    assert '(subpath "/p")' not in lines[write]
    assert "network" not in profile


def test_the_network_is_open_only_if_the_words_say_so() -> None:
    assert "(allow network*)" in macos_profile([], [], [], "all")
    for network in ("loopback", "hosts"):
        assert "(allow network*)" not in macos_profile([], [], [], network)


def test_a_child_that_may_not_spawn_runs_its_own_program_only() -> None:
    profile = macos_profile([], ["/w"], [], "none", may_spawn=False, programs=["/usr/bin/python3"])
    assert "process-fork" not in profile
    assert '(allow process-exec (literal "/usr/bin/python3"))' in profile


def test_a_path_cannot_leave_its_string() -> None:
    assert quoted('/a") (allow default) ("') == '"/a\\") (allow default) (\\""'
    profile = macos_profile([], ['/a")(allow default)("'], [], "none")
    assert profile.count("(") - profile.count("\\") >= 0
    assert '"/a\\")(allow default)(\\""' in profile
