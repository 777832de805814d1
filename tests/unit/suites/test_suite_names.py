from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.suites.suite_names import suite_names
from tests.cases import each_case

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
children = st.lists(
    st.tuples(
        st.text(max_size=90),
        st.one_of(st.just(""), st.sampled_from(["git_suite", "a_b"]), st.text(max_size=80)),
    ),
    max_size=12,
    unique_by=lambda child: child[0],
)


@each_case(
    ("child", "configured", "expected"),
    [
        ("github", "", "github_suite"),
        ("my-server_2", "", "my-server_2_suite"),
        ("github", "code", "code"),
        ("my server", "", "my_server_suite"),
        ("@scope/pkg.name", "", "scope_pkg_name_suite"),
        ("café", "", "cafe_suite"),
        ("github", "my tools!", "my_tools"),
        ("github", "!!!", "github_suite"),
        ("x" * 34, "", "x" * 34 + "_suite"),
        ("github", "y" * 64, "y" * 64),
    ],
)
def test_a_child_gets_a_name_every_host_takes(child: str, configured: str, expected: str) -> None:
    assert suite_names([(child, configured)]) == {child: expected}


@each_case("child", ["高德地图", "高德2", "🙂", "!!!", "", "   "])
def test_a_name_of_odd_characters_still_becomes_a_usable_one(child: str) -> None:
    name = suite_names([(child, "")])[child]
    assert re.fullmatch(r"child_[0-9a-f]{6}_suite", name)


def test_two_names_of_odd_characters_differ() -> None:
    assert len(set(suite_names([("高德", ""), ("百度", "")]).values())) == 2


def test_a_long_name_is_cut_and_told_apart() -> None:
    names = suite_names([("x" * 80 + "a", ""), ("x" * 80 + "b", "")])
    assert len(set(names.values())) == 2
    assert all(len(name) <= 40 and name.endswith("_suite") for name in names.values())


def test_a_configured_name_wins_over_a_generated_one() -> None:
    names = suite_names([("git", ""), ("other", "git_suite")])
    assert names["other"] == "git_suite"
    assert re.fullmatch(r"git_[0-9a-f]{6}_suite", names["git"])


def test_of_two_configured_names_the_one_as_written_wins() -> None:
    names = suite_names([("a", "my tools"), ("b", "my_tools")])
    assert names["b"] == "my_tools"
    assert names["a"].startswith("my_tools_")


def test_a_child_whose_name_needs_no_change_keeps_it() -> None:
    names = suite_names([("a b", ""), ("a.b", ""), ("a_b", "")])
    assert names["a_b"] == "a_b_suite"
    assert len(set(names.values())) == 3


def test_a_mark_that_is_taken_is_tried_anew() -> None:
    marked = suite_names([("git", ""), ("other", "git_suite")])["git"]
    names = suite_names([("git", ""), ("other", "git_suite"), ("third", marked)])
    assert names["third"] == marked
    assert re.fullmatch(r"git_[0-9a-f]{6}_suite", names["git"])
    assert names["git"] != marked


@given(children)
def test_names_are_unique_and_within_every_limit(found: list[tuple[str, str]]) -> None:
    names = suite_names(found)
    assert list(names) == [child for child, _ in found]
    assert len(set(names.values())) == len(names)
    for child, configured in found:
        assert NAME.fullmatch(names[child])
        assert configured or len(names[child]) <= 40


@given(children, st.randoms(use_true_random=False))
def test_the_order_of_children_does_not_matter(found: list[tuple[str, str]], random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert suite_names(shuffled) == suite_names(found)


@given(children)
def test_an_unrelated_child_changes_no_other_name(found: list[tuple[str, str]]) -> None:
    before = suite_names(found)
    newcomer = ("unrelated-newcomer", "unrelated-newcomer-tools")
    if newcomer[0] not in before and newcomer[1] not in before.values():
        after = suite_names([*found, newcomer])
        assert {child: after[child] for child in before} == before


def test_a_reserved_name_is_nobodys() -> None:
    names = suite_names([("mail", ""), ("post", "mail_suite"), ("web", "")], ["mail_suite"])
    assert names["web"] == "web_suite"
    assert len({*names.values(), "mail_suite"}) == 4
