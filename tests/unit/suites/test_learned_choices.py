"""What a search may learn from the calls after it."""

from __future__ import annotations

from switchboard_mcp.suites.learned_choices import (
    MAX_CHOICES,
    Choice,
    LearnedChoices,
    words_to_keep,
)
from switchboard_mcp.suites.search import Index, SearchDocument


def test_a_tool_is_raised_by_the_share_of_the_words_that_led_to_it() -> None:
    learned = LearnedChoices(
        [Choice("s", "notes", ("standup",)), Choice("s", "notes", ("note",)), Choice("s", "mail", ("note",))]
    )
    assert learned.shares(("standup",)) == {("s", "notes"): 1.0}
    assert learned.shares(("standup", "note")) == {("s", "notes"): 0.75, ("s", "mail"): 0.25}
    assert learned.shares(("other",)) == {}
    assert learned.shares(()) == {}


def test_only_the_latest_choices_count() -> None:
    old = [Choice("s", "old", ("word",))]
    new = [Choice("s", "new", ("word",))] * MAX_CHOICES
    assert LearnedChoices(old + new).shares(("word",)) == {("s", "new"): 1.0}


def test_numbers_codes_and_keys_are_not_kept() -> None:
    assert words_to_keep(["send", "ghp", "42", "a1b2", "x" * 40, "mail"]) == ("send", "ghp", "mail")


def test_what_was_learned_comes_before_a_better_match_of_words_and_is_found_without_any() -> None:
    index = Index([SearchDocument("create_note", "Writes a note."), SearchDocument("post", "Sends it.")])
    assert [hit.place for hit in index.search("note")] == [0]
    assert [hit.place for hit in index.search("note", learned={1: 1.0})] == [0, 1]
    assert [hit.place for hit in index.search("create note", learned={1: 1.01})] == [1, 0]
    assert [hit.place for hit in index.search("standup", learned={1: 1.0})] == [1]
