"""The decision about one call: which rules match, and that no deny rule can be slipped."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from switchboard_mcp.config.gate import GateRule, GateSettings, gate_settings, unsafe_pattern
from switchboard_mcp.policy.gate.conditions import UNREADABLE, Arguments, StarPatterns, Surroundings
from switchboard_mcp.policy.gate.rules import (
    GateCall,
    GateRules,
    Kind,
    ToolHints,
    tool_hints,
    without_general_questions,
)
from switchboard_mcp.policy.gate.spellings import hosts_of
from switchboard_mcp.system.star_patterns import matches_stars
from tests.cases import each_case

AROUND = Surroundings("/w", "/w", "/home/me", lambda path: path)
READ, WRITE = tool_hints(True, None, None), ToolHints()


def rules(*written: Mapping[str, object], otherwise: str = "allow") -> GateRules:
    return GateRules(msgspec.convert({"rules": written, "otherwise": otherwise}, GateSettings))


def decide(
    gate: GateRules,
    name: str = "write_file",
    args: object = None,
    hints: ToolHints = WRITE,
    around: Surroundings = AROUND,
    kind: Kind = "tool",
    **call: str,
) -> str:
    made = GateCall(kind, "files", "files_suite", name, **call)
    found = gate.candidates(made)
    decision = found.settled or gate.strictest(found, kind, hints, [args or {}], around)
    return decision.effect


@each_case(
    ("rule", "matches"),
    [
        ({"suite": "files"}, True),
        ({"suite": "files_suite"}, True),
        ({"suite": ["other", "fil*"]}, True),
        ({"suite": "other"}, False),
        ({"subtool": "write_*"}, True),
        ({"subtool": "read_*"}, False),
        ({"hints": {"readOnly": False}}, True),
        ({"hints": {"readOnly": True}}, False),
        ({"hints": {"destructive": True, "openWorld": True}}, True),
        ({"client": "claude-*"}, True),
        ({"client": "codex"}, False),
        ({"principal": "ann"}, True),
        ({"profile": "ci"}, False),
        ({"resource": "*"}, False),
        ({"prompt": "*"}, False),
        ({}, True),
    ],
)
def test_a_rule_matches_what_it_names(rule: dict[str, object], matches: bool) -> None:
    gate = rules({"deny": True, **rule})
    assert (decide(gate, client="claude-code", principal="ann") == "deny") is matches


@each_case(
    ("condition", "value", "matches"),
    [
        ({"equals": "x"}, "x", True),
        ({"equals": "x"}, "X", True),
        ({"equals": 5}, 5, True),
        ({"equals": 5}, "5", True),
        ({"equals": True}, "TRUE", True),
        ({"equals": 5}, 6, False),
        ({"equals": 5}, 5.0, True),
        ({"equals": 5}, " +5.0", True),
        ({"equals": "5"}, 5, True),
        ({"equals": "5"}, 6, False),
        ({"equals": True}, 1, True),
        ({"equals": True}, "yes", True),
        ({"equals": True}, False, False),
        ({"equals": False}, 0, True),
        ({"equals": {"a": 1}}, {"a": 1.0}, True),
        ({"equals": None}, False, False),
        ({"regex": "a.*b.*c"}, "x" * 401, True),
        ({"hostIn": "evil.test"}, "http:evil.test", True),
        ({"hostIn": "evil.test"}, "HTTPS:/evil.test/x", True),
        ({"hostIn": "evil.test"}, "//evil.test/x", True),
        ({"hostIn": "evil.test"}, "http://evil.test\u3002/", True),
        ({"hostIn": "127.0.0.1"}, "http://2130706433/", True),
        ({"hostIn": "127.0.0.1"}, "http://0x7f.1/", True),
        ({"hostIn": "127.*"}, "http://0177.1:80/", True),
        ({"hostIn": "127.0.0.1"}, "http://[::ffff:7f00:1]/", True),
        ({"hostIn": "::1"}, "http://[0:0:0:0:0:0:0:1]/", True),
        ({"hostIn": "evil.test"}, "http://1.evil.test/", False),
        ({"hostNotIn": ["10.0.0.1"]}, "http://10.0.0.1/", False),
        ({"hostNotIn": ["http"]}, "http:evil.test", True),
        ({"glob": "*.env"}, "a/.env", True),
        ({"glob": "DROP *"}, "drop table/x", True),
        ({"glob": "*.env"}, "a.txt", False),
        ({"glob": "*.env"}, "file:///w/.env?x#y", True),
        ({"inside": "secret"}, "file://any.test/w/secret/x", True),
        ({"outside": "."}, "file://localhost/w/a", False),
        ({"inside": "/home/me"}, "$HOME/.ssh", True),
        ({"inside": "/home/me"}, "$HOMES/.ssh", False),
        ({"regex": "^rm "}, "rm -rf /", True),
        ({"regex": "^rm "}, "ls rm", False),
        ({"regex": "^rm "}, "x" * 5000, True),
        ({"min": 10}, 10, True),
        ({"min": 10}, 9.5, False),
        ({"max": 10}, "11", False),
        ({"max": 10}, "many", True),
        ({"min": 10}, float("nan"), True),
        ({"hostNotIn": ["*.example.com"]}, "https://api.example.com/x", False),
        ({"hostNotIn": ["*.example.com"]}, "https://api.example.com@evil.test/", True),
        ({"hostNotIn": ["*.example.com"]}, "https://evil.test/?x=.example.com", True),
        ({"hostNotIn": ["*.example.com"]}, "https://evil.test\\.example.com", True),
        ({"hostNotIn": ["*.example.com"]}, "API.EXAMPLE.COM:443", False),
        ({"hostIn": "evil.test"}, "http://EVIL.test./", True),
        ({"hostNotIn": ["*.example.com"]}, "https://api.example.com/" + "x" * 10_000, False),
        ({"hostNotIn": ["*.example.com"]}, "HTTPS://api.example.com/" + "é" * 10_000, True),
        ({"hostIn": ["evil.test"]}, "HTTPS://api.example.com/" + "é" * 10_000, True),
        ({"present": True}, "x", True),
        ({"present": False}, "x", False),
        ({"glob": "*"}, None, False),
        ({"outside": "."}, ["/w/a", "/etc/passwd"], True),
        ({"outside": "."}, ["/w/a", "b"], False),
    ],
)
def test_a_rule_that_denies_matches_any_value(condition: object, value: object, matches: bool) -> None:
    gate = rules({"deny": True, "args": {"x": condition}})
    assert (decide(gate, args={"x": value}) == "deny") is matches
    assert (decide(gate, args={"deep": [{"X": value}]}) == "deny") is matches


@each_case(
    ("args", "denied"),
    [
        ({"path": "/etc/x"}, True),
        ({"Source": "a", "destination": "/etc/x"}, True),
        ({"edit": {"paths": ["a", "/etc/x"]}}, True),
        ({"to": {"file": "/etc/x"}}, True),
        ({"source": "a", "destination": "b"}, False),
        ({"other": "/etc/x"}, False),
        ({"file": "/etc/x"}, False),
        ({}, False),
    ],
)
def test_a_condition_may_name_several_arguments(args: object, denied: bool) -> None:
    gate = rules({"deny": True, "args": {"path|paths|source | destination|to.file": {"outside": "."}}})
    assert (decide(gate, args=args) == "deny") is denied
    simple = rules({"deny": True, "args": {"path|paths|source|destination": {"outside": "."}}})
    found = simple.candidates(GateCall("tool", "files", "files_suite", "x"))
    skipped = simple.decide_by_names(found, "tool", WRITE, json.dumps(args).encode())
    assert (skipped is None) is any(
        name in json.dumps(args).lower() for name in ("path", "source", "destination")
    )


OUTSIDE = [
    "/etc/passwd",
    "../x",
    "a/../../x",
    "/w/../etc",
    "~/secrets",
    "~root/x",
    "%2e%2e/x",
    "%252e%252e/x",
    "..%2fx",
    "..\\x",
    "file:///etc/passwd",
    "file://any.test/etc/passwd",
    "$HOME/x",
    "${HOME}/x",
    "file://localhost/etc/passwd",
    "FILE:/etc/passwd",
    "//etc/passwd",
    "/W2/x",
    "/wx",
    " ../x",
    "/etc/passwd\x00.txt",
    "a/\x00/../../../etc",
    "link/x",
    "link/../x",
    7,
    {"a": 1},
    "x" * 5000,
    "/W/a",
    "$PWD/../x",
    "$TMPDIR/x",
    "$OLDPWD/x",
    "${XDG_CONFIG_HOME}/x",
    "%USERPROFILE%\\x",
    "@/etc/passwd",
    "\ufeff/etc/passwd",
    "\u200b/etc/passwd",
]
INSIDE = [
    "a",
    "./a/b",
    "/w",
    "/w/a",
    "a/../b",
    "file:///w/a",
    "a%20b",
    "%2e/a",
    "$PWD/a",
    "ä@b",
    ".hidden",
    "a..b",
]


def follow(path: str) -> str:
    """A disk on which `/w/link` leads to `/etc/deep`."""
    return path.replace("/w/link", "/etc/deep", 1) if path.startswith("/w/link") else path


@each_case("value", OUTSIDE)
def test_no_path_leads_out_of_a_folder(value: object) -> None:
    around = Surroundings("/w", "/w", "/home/me", follow)
    for condition in ({"outside": "."}, {"outside": ["/w", "/w/a"]}):
        assert (
            decide(rules({"deny": True, "args": {"path": condition}}), args={"path": value}, around=around)
            == "deny"
        )
    inside = rules({"allow": True, "args": {"path": {"inside": "/w"}}}, otherwise="deny")
    assert decide(inside, args={"path": value}, around=around) == "deny"


@each_case("value", INSIDE)
def test_a_path_in_the_folder_is_let_through(value: str) -> None:
    gate = rules({"deny": True, "args": {"path": {"outside": "."}}})
    assert decide(gate, args={"path": value}) == "allow"
    inside = rules({"allow": True, "args": {"path": {"inside": "/w"}}}, otherwise="deny")
    assert decide(inside, args={"path": value}) == "allow"


@each_case(
    "value",
    [
        "/etc",
        "/etc/",
        "/etc/x",
        "/ETC/x",
        "/w/../etc/x",
        "../etc/x",
        "%2fetc/x",
        "file:///etc/x",
        "/./etc//x",
    ],
)
def test_a_glob_sees_a_path_in_every_form(value: str) -> None:
    gate = rules({"deny": True, "args": {"path": {"glob": "/etc/**"}}})
    assert decide(gate, args={"path": value}) == "deny"


def test_symbolic_links_on_disk_are_followed(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / "out")
    work = str(tmp_path / "work")
    around = Surroundings(work, work, "", os.path.realpath)
    gate = rules({"deny": True, "args": {"path": {"outside": "."}}})
    assert decide(gate, args={"path": "link/x"}, around=around) == "deny"
    assert decide(gate, args={"path": "plain/x"}, around=around) == "allow"


def test_the_disk_is_asked_once_about_a_path_however_many_rules_look_at_it() -> None:
    asked: list[str] = []

    def resolve(path: str) -> str:
        asked.append(path)
        return follow(path)

    conditions: list[dict[str, object]] = [
        {"outside": "."},
        {"outside": ["src", "."]},
        {"glob": "/etc/**"},
        {"glob": "*.env"},
    ]
    gate = rules(*({"deny": True, "args": {"path": each}} for each in conditions * 10))
    around = Surroundings("/w", "/w", "/home/me", resolve)
    assert decide(gate, args={"path": "src/main.py"}, around=around) == "allow"
    assert asked == ["/w/src/main.py"]


def test_a_folder_that_is_a_link_holds_what_is_in_its_target() -> None:
    around = Surroundings("/w", "/w", "/home/me", follow)
    outside = rules({"deny": True, "args": {"path": {"outside": "link"}}})
    inside = rules({"deny": True, "args": {"path": {"inside": "link"}}})
    for path in ("link/x", "/etc/deep/x"):
        assert decide(outside, args={"path": path}, around=around) == "allow"
        assert decide(inside, args={"path": path}, around=around) == "deny"


labels = st.from_regex(r"[A-Za-z0-9-]{1,5}", fullmatch=True) | st.sampled_from(["0x7f", "127", "1", "xn--a"])
web_addresses = st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["http", "https", "ws", "ftp", "HTTP", "file", "gopher"]),
    st.lists(labels, min_size=1, max_size=4).map(".".join)
    | st.text("a1.-@[]:%\u3002\u017f\u212a \\", max_size=8),
    st.sampled_from(["", ":80", ":", ":999999", "@evil.test", ":80@evil.test", "."]),
    st.sampled_from(["", "/"]) | st.text("/?#@:a.%\\[\n", max_size=6),
)


@given(web_addresses)
def test_a_plain_url_has_the_host_that_splitting_it_finds(url: str) -> None:
    # White space around a URL changes nothing, and only splits it the longer way.
    assert hosts_of(url) == hosts_of(f" {url}")


@given(
    st.lists(st.text("ab/*", max_size=6), max_size=4),
    st.text("ab/", max_size=6) | st.just("a/b\n") | st.just(""),
)
def test_patterns_match_what_each_of_them_matches(listed: list[str], text: str) -> None:
    alone = [
        matches_stars(text, re.split(r"\*+", each)) or (each.endswith("/**") and text == each[:-3])
        for each in listed
    ]
    assert StarPatterns.compile(listed).match(text) is any(alone)


def test_a_rule_about_a_folder_holds_for_a_path_whose_folder_only_the_server_knows() -> None:
    gate = rules({"deny": True, "args": {"x": {"inside": "~/.config"}}})
    paths = ["${XDG_CONFIG_HOME}/x", "$TMPDIR/x", "/HOME/me/.CONFIG/x", "%USERPROFILE%\\.config\\x"]
    assert [path for path in paths if decide(gate, args={"x": path}) != "deny"] == []


def test_deny_comes_before_ask_and_ask_before_allow() -> None:
    allow, ask, deny = {"allow": True}, {"ask": "always"}, {"deny": True}
    assert decide(rules(allow, ask, deny)) == "deny"
    assert decide(rules(allow, ask)) == "ask"
    assert decide(rules(allow, otherwise="deny")) == "allow"
    assert decide(rules({"allow": True, "subtool": "x"}, otherwise="ask")) == "ask"


def test_of_several_rules_that_ask_the_first_says_for_how_long() -> None:
    gate = rules({"ask": "10m"}, {"ask": "always"})
    settled = gate.candidates(GateCall("tool", "a", "a", "x")).settled
    assert settled is not None
    assert settled.seconds == 600


def test_absent_hints_count_as_the_worst() -> None:
    assert tool_hints(None, None, None) == ToolHints(read_only=False, destructive=True, open_world=True)
    assert tool_hints(True, None, None) == ToolHints(read_only=True, destructive=False, open_world=True)


@each_case("uri", ["mem://secret/a", "mem://secret/%61", "mem://x/../secret/a", "MEM://secret/a"])
def test_a_resource_is_compared_in_every_spelling(uri: str) -> None:
    gate = rules({"deny": True, "resource": "mem://secret/*"})
    assert decide(gate, uri, kind="resource") == "deny"
    assert decide(gate, "mem://open/a", kind="resource") == "allow"


def test_otherwise_is_about_tools_only() -> None:
    gate = rules(otherwise="deny")
    assert decide(gate) == "deny"
    assert decide(gate, "mem://a", kind="resource") == "allow"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["write_file", "read_file", "a", "*", "w*", "?"])
conditions = st.sampled_from(
    [
        {"glob": "*"},
        {"equals": 1},
        {"regex": "a"},
        {"min": 0},
        {"outside": "."},
        {"present": True},
        {"present": False},
    ]
)
written_rules = st.fixed_dictionaries(
    {},
    optional={
        "suite": st.sampled_from(["files", "*", "other"]),
        "subtool": names,
        "hints": st.sampled_from([{"readOnly": True}, {"readOnly": False}]),
        "args": st.dictionaries(st.sampled_from(["path", "a", "**", "b|path"]), conditions, max_size=2),
    },
)
effects = st.sampled_from([{"allow": True}, {"ask": "always"}, {"ask": "session"}, {"deny": True}])


@given(
    written=st.lists(st.builds(lambda rule, effect: {**rule, **effect}, written_rules, effects), max_size=6),
    args=st.dictionaries(st.sampled_from(["path", "a", "b"]), json_values, max_size=3),
    name=st.sampled_from(["write_file", "read_file", "a"]),
    hints=st.sampled_from([READ, WRITE]),
)
def test_no_set_of_rules_lets_through_what_one_of_its_deny_rules_matches(
    written: list[dict[str, object]], args: object, name: str, hints: ToolHints
) -> None:
    denied = [rule for rule in written if "deny" in rule and decide(rules(rule), name, args, hints) == "deny"]
    asked = [rule for rule in written if "ask" in rule and decide(rules(rule), name, args, hints) == "ask"]
    expected = "deny" if denied else "ask" if asked else "allow"
    assert decide(rules(*written), name, args, hints) == expected


@each_case(
    ("pattern", "problem"),
    [
        ("^DROP TABLE", ""),
        (".*password.*", ""),
        ("(a+)+", "has a repetition inside another"),
        ("(a|b*)*", "has a repetition inside another"),
        ("a*b*c*", "has more than 2 unlimited repetitions"),
        (r"(a)\1", "refers back to a group"),
        ("(", "is not valid"),
        ("(a|ab)*c", "has alternatives inside a repetition"),
        ("(aa?)*c", "has a repetition inside another"),
        ("a?" * 9, "has too many optional parts"),
        (r"^https?://(www\.)?[a-z]+(-[a-z])?", ""),
        ("a{1,5000}b{1,5000}c{1,5000}", "has more than 2 unlimited repetitions"),
    ],
)
def test_a_pattern_that_may_take_long_is_refused(pattern: str, problem: str) -> None:
    assert unsafe_pattern(pattern).startswith(problem)
    assert bool(unsafe_pattern(pattern)) is bool(problem)


@each_case("pattern", ["a*a*b", ".*a.*b", "a*b", "a{1,16}a{1,16}b"])
def test_no_text_takes_long_to_search(pattern: str) -> None:
    assert not unsafe_pattern(pattern)
    gate = rules({"deny": True, "args": {"x": {"regex": pattern}}})
    began = time.process_time()
    for length in (400, 2_000):
        decide(gate, args={"x": "a" * length})
    assert time.process_time() - began < 1


@each_case(
    ("rule", "problem"),
    [
        ({}, "set exactly one of"),
        ({"allow": True, "deny": True}, "set exactly one of"),
        ({"ask": "sometimes"}, "`ask` must be"),
        ({"deny": True, "args": {"x": {}}}, "the condition is empty"),
        ({"deny": True, "args": {"x": {"present": False, "glob": "a"}}}, "cannot be combined"),
        ({"deny": True, "args": {"x": {"regex": "(a+)+"}}}, "repetition inside another"),
        ({"deny": True, "args": {"x": {"equals": ["a"]}}}, "cannot be a list"),
        ({"deny": True, "resource": "a", "subtool": "b"}, "has no `subtool`"),
        ({"deny": True, "resource": "a", "args": {"x": {"glob": "b"}}}, "has no `args`"),
        ({"deny": True, "subtools": "a"}, "unknown field"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: object, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem.replace("(", r"\(")):
        msgspec.convert(rule, GateRule)


def test_a_list_is_the_same_as_its_rules() -> None:
    rule = GateRule(deny=True)
    assert gate_settings([rule]) == GateSettings(rules=[rule])
    assert not gate_settings([]).enabled
    assert not gate_settings([GateRule(allow=True)]).enabled


def test_values_are_found_by_name_at_any_depth_and_by_path_from_the_top() -> None:
    decoded = json.loads('{"file": {"path": "a"}, "files": [{"path": ["b", "c"]}], "path": "d"}')
    args = Arguments(decoded)
    assert args.values("path") == args.values("**.path") == ["a", "b", "c", "d"]
    assert args.values("file.path") == ["a"]
    assert args.values("file*.path") == ["a", "b", "c"]


def test_arguments_that_cannot_be_decoded_satisfy_every_condition_of_a_rule_that_denies() -> None:
    conditions = [
        {"x": {"equals": 1}},
        {"x": {"present": False}},
        {"a.**": {"glob": "b"}},
        {"x | y": {"outside": "."}},
        {"x": {"hostIn": "evil.test"}, "y": {"max": 3}},
    ]
    denied = [decide(rules({"deny": True, "args": args}), args=UNREADABLE) for args in conditions]
    assert denied == ["deny"] * len(conditions)
    allow = rules({"allow": True, "args": {"x": {"glob": "*"}}}, otherwise="deny")
    assert decide(allow, args=UNREADABLE) == "deny"


@each_case("args", [{"x": ["a"] * 65}, {"x": [[[["b"]]]], "y": "["}])
def test_arguments_too_large_to_compare_are_denied(args: dict[str, object]) -> None:
    deny = rules({"deny": True, "args": {"x": {"equals": "b"}}})
    assert decide(deny, args=args) == "deny"
    deep: object = "a"
    for _ in range(70):
        deep = [deep]
    assert decide(deny, args={"x": deep}) == "deny"
    allow = rules({"allow": True, "args": {"x": {"equals": "a"}}}, otherwise="deny")
    assert decide(allow, args={"x": deep}) == "deny"


def test_questions_about_any_tool_are_left_out_and_the_others_keep_their_numbers() -> None:
    written = [
        {"ask": "session", "hints": {"readOnly": False}},
        {"ask": "always", "suite": "program"},
        {"ask": "always", "args": {"path": {"present": True}}},
        {"ask": "10m", "client": "codex"},
        {"deny": True, "subtool": "drop_*"},
    ]
    settings = msgspec.convert({"rules": written, "otherwise": "ask"}, GateSettings)
    left = without_general_questions(settings)
    assert [bool(rule.ask) for rule in left.rules] == [False, True, True, False, False]
    assert [rule.allow for rule in left.rules] == [True, False, False, True, False]
    assert left.rules[4].deny
    assert left.otherwise == "allow"
    assert without_general_questions(structs.replace(settings, otherwise="deny")).otherwise == "deny"
