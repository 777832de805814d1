"""The sandbox settings: presets and layers, path variables, host rules, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import sandbox_of
from switchboard_mcp.config.sandbox import (
    OFF,
    PRESETS,
    HostRule,
    SandboxFiles,
    SandboxLimits,
    SandboxSettings,
    brief,
    effective,
    fill_path,
    merged,
    parse_host,
    path_problem,
)
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case


def load(folder: Path, config: object) -> object:
    (folder / "switchboard.config.json").write_text(json.dumps(config))
    return load_workspace(str(folder), None, {})


class TestLayers:
    def test_there_is_no_sandbox_by_default(self) -> None:
        assert effective(None, None) == OFF
        assert effective("strict", "off") == OFF
        assert effective("off", None) == OFF

    def test_governed_mode_has_one_by_default(self) -> None:
        assert effective(None, None, governed=True) == PRESETS["workspace"]
        assert effective("off", None, governed=True) == OFF
        assert effective(None, "off", governed=True) == OFF
        assert effective("strict", None, governed=True) == PRESETS["strict"]

    def test_an_approval_reads_like_the_config(self) -> None:
        own = SandboxSettings(network=["example.com"])
        assert msgspec.to_builtins(merged("workspace", own)) == {
            "preset": "workspace",
            "network": ["example.com"],
        }
        assert brief(merged(None, None, governed=True)) == "workspace"
        assert brief(merged("workspace", own)) == '{"preset":"workspace","network":["example.com"]}'

    def test_a_child_has_its_own_preset_or_the_default(self) -> None:
        assert effective("strict", None) == PRESETS["strict"]
        assert effective("strict", "browser") == PRESETS["browser"]
        assert effective("off", "strict") == PRESETS["strict"]

    def test_settings_without_a_preset_are_of_a_workspace(self) -> None:
        words = effective(None, SandboxSettings(network=["example.com"]))
        assert (words.preset, words.network, words.hosts) == ("workspace", "hosts", ["example.com"])

    def test_a_child_adds_paths_and_replaces_the_rest(self) -> None:
        default = SandboxSettings(
            files=SandboxFiles(read=["/a"], write=["/b"]), network="none", limits=SandboxLimits(open_files=10)
        )
        own = SandboxSettings(files=SandboxFiles(read=["/c"], protect=[]), limits=SandboxLimits(memory_mb=7))
        words = effective(default, own)
        assert words.read == ["/a", "/c"]
        assert words.write == ["${workspace}", "${cache}", "/b"]
        assert words.protect == []
        assert words.network == "none"
        assert (words.limits["openFiles"], words.limits["memoryMb"]) == (10, 7)

    def test_a_preset_of_its_own_starts_afresh(self) -> None:
        default = SandboxSettings(preset="workspace", files=SandboxFiles(write=["/b"]), network="all")
        words = effective(default, SandboxSettings(preset="strict"))
        assert words == PRESETS["strict"]

    def test_words_that_cancel_a_sandbox_are_ignored_with_off(self) -> None:
        own = SandboxSettings(preset="off", network=["example.com"])
        assert effective("strict", own) == OFF


class TestPaths:
    @each_case("path", ["/a", "~/a", "${workspace}", "${cache}/x", "${home}/.x", "${package}"])
    def test_accepted(self, path: str) -> None:
        assert path_problem(path) == ""

    @each_case("path", ["a", "./a", "$HOME/x", "${HOME}", "${workspace}/../x", "/a/${home}", "${tmp}x"])
    def test_refused(self, path: str) -> None:
        assert path_problem(path)

    def test_a_variable_is_replaced_by_its_folder(self) -> None:
        places = {"workspace": "/w", "home": "/h", "package": ""}
        assert fill_path("${workspace}/a", places) == "/w/a"
        assert fill_path("~/a", places) == "/h/a"
        assert fill_path("/a", places) == "/a"
        assert fill_path("${package}/a", places) == ""


class TestHosts:
    @each_case(
        ("text", "host", "ports"),
        [
            ("API.example.com", "api.example.com", (80, 443)),
            ("api.example.com.", "api.example.com", (80, 443)),
            ("*.example.com:443", "*.example.com", (443,)),
            ("db:5432,5433", "db", (5432, 5433)),
            ("10.0.0.0/8:22", "10.0.0.0/8", (22,)),
            ("localhost:1", "localhost", (1,)),
            ("*", "*", (80, 443)),
            ("127.0.0.1:8080", "localhost", (8080,)),
            ("[::1]:8080", "localhost", (8080,)),
            ("[2001:DB8:0::7]:22", "2001:db8::7", (22,)),
            ("[2001:db8::/32]:22,23", "2001:db8::/32", (22, 23)),
            ("[2001:db8::7]", "2001:db8::7", (80, 443)),
            ("2001:db8::7", "2001:db8::7", (80, 443)),
            ("2001:db8::/32", "2001:db8::/32", (80, 443)),
        ],
    )
    def test_accepted(self, text: str, host: str, ports: tuple[int, ...]) -> None:
        assert parse_host(text) == HostRule(host, ports)

    @each_case(
        "text",
        [
            "", ":", ":80", "a:", "a:0", "a:65536", "a:x", "a:80,", "localhost", "http://a", "a/b", "a b", "*a.com",
            "a.*", "[::1]", "::1", "[::1", "[::1]8", "[::1]:", "[a]:1:2", "1:2", "fe80::1%lo:1", "2001:db8::/129",
            "300.1.1.1", "1.2.3.4/33", "1.2.3", "-a.com", "a" * 254, "é.com",
        ],
    )  # fmt: skip
    def test_refused(self, text: str) -> None:
        problem = parse_host(text)
        assert isinstance(problem, str)
        assert problem.endswith(".")


class TestFiles:
    def test_mistakes_name_their_keys(self, tmp_path: Path) -> None:
        config = {
            "sandbox": {"files": {"read": ["relative"]}},
            "suites": {
                "x": {"sandbox": {"network": ["ok.com", "http://bad"], "files": {"write": ["${nope}"]}}}
            },
        }
        with pytest.raises(SwitchboardError) as caught:
            load(tmp_path, config)
        text = str(caught.value)
        assert "sandbox.files.read[0]: must be absolute" in text
        assert "suites.x.sandbox.network[1]: `http://bad`" in text
        assert "suites.x.sandbox.files.write[0]: has no variable ${nope}" in text

    @each_case("value", ["stricter", {"preset": "x"}, {"netwrok": "no"}, {"limits": {"memoryMb": 0}}, 1])
    def test_calls_that_the_types_rule_out_are_refused(self, tmp_path: Path, value: object) -> None:
        with pytest.raises(SwitchboardError) as caught:
            load(tmp_path, {"suites": {"x": {"sandbox": value}}})
        assert "suites.x.sandbox" in str(caught.value)

    def test_a_preset_alone_is_enough(self, tmp_path: Path) -> None:
        workspace = load(tmp_path, {"sandbox": "strict", "suites": {"x": {"sandbox": "workspace"}}})
        config = workspace.config  # type: ignore[attr-defined]
        assert sandbox_of("x", config).preset == "workspace"
        assert sandbox_of("y", config).preset == "strict"
