from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.mail.path_patterns import artifact_path, fits, normal_path, overlap
from tests.cases import each_case

PIECES = st.sampled_from(["a", "b", "*", "?", "a*", "*b", "**"])
PATTERNS = st.lists(PIECES, min_size=1, max_size=4).map("/".join)
PATHS = [
    "/".join(parts) for length in (1, 2, 3) for parts in itertools.product(("a", "b", "ab"), repeat=length)
]


@each_case(
    ("written", "path"),
    [
        ("a", "a"),
        ("./a//b/", "a/b"),
        ("src/**/*.py", "src/**/*.py"),
        ("", None),
        (".", None),
        ("/etc/passwd", None),
        ("a/../b", None),
        ("..", None),
        ("a\\b", None),
        ("a\nb", None),
        ("a\0b", None),
        ("a" * 401, None),
    ],
)
def test_a_path_has_one_form_inside_the_workspace(written: str, path: str | None) -> None:
    assert normal_path(written) == path


@each_case(
    ("written", "allowed"),
    [
        (".switchboard/reviews/x.md", True),
        (".switchboard/state.json", False),
        (".switchboard/reviews", False),
        (".switchboard/inbox/bob/msg_1.json", False),
        ("./.switchboard//seal.key", False),
        (".Switchboard/state.json", False),
        (".SWITCHBOARD/reviews/x.md", False),
        ("src/.switchboard/x", True),
    ],
)
def test_of_the_mail_server_only_reviews_can_be_artifacts(written: str, allowed: bool) -> None:
    assert (artifact_path(written) is not None) is allowed


@each_case(
    ("path", "pattern", "does"),
    [
        ("a/c.py", "a/*.py", True),
        ("a/b/c.py", "a/*.py", False),
        ("a/b/c.py", "a/**/*.py", True),
        ("a/c.py", "a/**/*.py", True),
        ("a/c.pyx", "a/*.py", False),
        ("c.py", "**", True),
        ("abc", "a?c", True),
        ("ac", "a?c", False),
        ("a*", "ab", False),  # a star in a path is a star
        ("**", "a", False),
    ],
)
def test_a_path_fits_a_pattern(path: str, pattern: str, does: bool) -> None:
    assert fits(path, pattern) is does


@each_case(
    ("one", "other", "do"),
    [
        ("src", "src/a.py", True),
        ("src/a.py", "src", True),
        ("src/*.py", "src/a.*", True),
        ("src/*.py", "src/*.js", False),
        ("src/a", "src/ab", False),
        ("**/x.py", "docs", True),
        ("docs/*", "src/*", False),
        ("a*c", "*b*", True),
        ("?", "ab", False),
    ],
)
def test_patterns_that_may_mean_one_file_overlap(one: str, other: str, do: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is do


@given(PATTERNS, PATTERNS)
def test_two_patterns_that_a_path_fits_overlap(one: str, other: str) -> None:
    both = [path for path in PATHS if fits(path, one) and fits(path, other)]
    assert overlap(one, other) or not both


def test_patterns_with_many_stars_are_decided_at_once() -> None:
    hard = "*a" * 90
    assert overlap(hard, hard + "b") is False
    assert overlap("**/a/" * 60, "**/a/" * 60 + "b") is True
