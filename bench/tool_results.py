"""Scenario: how many tokens of recorded tool results reach a model, and what reading on costs.

The data has the results of one agent's runs and its final answers. A word of a result counts as needed if it occurs in
a later call or in the answer, and neither in the task nor before. If a shortened answer lacks such a word, reading on
is counted: *targeted* is one search with the handle, *whole* reads all further pages.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bench import data
from bench.report import Figures, Goal, Options, Report, Table
from switchboard_mcp.cli.commands.tokens import choose_counter
from switchboard_mcp.config.results import ResultSettings
from switchboard_mcp.gateway.results.shaping import FIND_TOKENS, ResultShaper
from switchboard_mcp.suites.results.answers import lines_with, page_of

CALLS = data.FOLDER / "results" / "trajectories.json.gz"
ANSWERS = data.FOLDER / "results" / "answers.json.gz"
# What another call costs beside its result.
REQUEST_TOKENS = 150
WORD = re.compile(r"[\w./:@-]{4,}")
MAX_WORDS = 8
WRAPPED = "meta=None content=[TextContent(type='text', text='"
INCOMPLETE = re.compile(r"\\u?[0-9a-fA-F]{0,3}$")
FIRST_TEXT = re.compile(r'"text": "((?:[^"\\]|\\.)*)')
SETTINGS = {
    "as they came": ResultSettings(compact="off", max_tokens=0),
    "defaults": ResultSettings(),
    "compaction on": ResultSettings(compact="on"),
}


class Recorded(NamedTuple):
    """One call: its text, and the words of it that were needed later."""

    text: str
    needed: frozenset[str]


def run(options: Options) -> Report:
    """Shape every recorded result in each way."""
    if gone := data.missing(CALLS, ANSWERS):
        return Report(notes=[f"results: {gone}"])
    calls = list(recorded())
    count_bytes, counter = choose_counter("")

    def count(text: str) -> int:
        return count_bytes(text.encode("utf-8", "replace"))

    whole = sum(count(call.text) for call in calls)
    figures: Figures = {}
    rows = []
    for name, settings in SETTINGS.items():
        found = measure(calls, settings, count)
        figures[name] = {**found, "saved %": 100 * (1 - found["shown"] / whole)}
        for kind in ("targeted", "whole"):
            figures[name][f"net {kind} %"] = 100 * (1 - (found["shown"] + found[kind]) / whole)
        row = figures[name]
        rows.append(
            [
                name,
                f"{found['shortened']:.0f}",
                f"{row['saved %']:.1f}",
                f"{row['net targeted %']:.1f}",
                f"{row['net whole %']:.1f}",
                f"{found['us per KB']:.0f}",
            ]
        )
    heads = ["results", "shortened", "saved %", "net, targeted reads %", "net, whole reads %", "µs per KB"]
    goals = [
        Goal(
            "tokens of results saved with defaults, targeted reads",
            figures["defaults"]["net targeted %"],
            "at least",
            10,
            " %",
        ),
        Goal("the same with compaction on", figures["compaction on"]["net targeted %"], "at least", 20, " %"),
    ]
    title = f"Results that reach the model: {len(calls)} recorded calls, {whole:,} tokens ({counter})"
    return Report(tables=[Table(title, heads, rows)], goals=goals, figures=figures)


def measure(calls: list[Recorded], settings: ResultSettings, count: Callable[[str], int]) -> dict[str, float]:
    """Return tokens shown, tokens of reading on, and the time that shaping took."""
    loop = asyncio.new_event_loop()
    shaper = ResultShaper(settings, "suite", loop)
    loop.close()  # nothing is stored
    shown = targeted = whole = shortened = size = 0
    spent = 0.0
    for call in calls:
        body = json.dumps({"content": [{"type": "text", "text": call.text}]}).encode()
        began = time.perf_counter()
        shaped = shaper.shape(body, "", "r0123456789abcdef01", "")
        spent += time.perf_counter() - began
        size += len(body)
        text = json.loads(shaped.body)["content"][0]["text"]
        shown += count(text)
        if shaped.kept is None:
            continue
        shortened += 1
        lacking = {word for word in call.needed if word not in text}
        if lacking:
            words = " ".join(sorted(lacking, key=len)[-MAX_WORDS:])
            targeted += REQUEST_TOKENS + count(lines_with(shaped.kept.text, words, FIND_TOKENS))
            _, pages = page_of(shaped.kept.text, 1, settings.max_tokens, shaped.kept.shown)
            whole += (pages - 1) * REQUEST_TOKENS + count(shaped.kept.text[shaped.kept.shown :])
    return {
        "shown": shown,
        "targeted": targeted,
        "whole": whole,
        "shortened": shortened,
        "us per KB": spent * 1e6 / (size / 1024),
    }


def recorded() -> Iterator[Recorded]:
    """Yield the calls, each with the words that were needed after it."""
    with gzip.open(CALLS) as file:
        tasks: list[dict[str, Any]] = json.load(file)["tasks"]
    with gzip.open(ANSWERS) as file:
        answers: dict[str, str] = json.load(file)
    for task in tasks:
        calls = task["calls"]
        texts = ["\n".join(map(unwrapped, call["content"])) for call in calls]
        known = words(task["question"])
        for index, text in enumerate(texts):
            later = words(json.dumps([call["arguments"] for call in calls[index + 1 :]], ensure_ascii=False))
            later |= words(answers.get(task["task"], ""))
            before = known | words(json.dumps(calls[index]["arguments"], ensure_ascii=False))
            yield Recorded(text, frozenset((words(text) & later) - before))
            known |= words(text)


def unwrapped(text: str) -> str:
    """Return the text of a result that was recorded as the representation of an object, cut at some character.

    Inside of that is JSON, whose `text` is wanted. Each layer may end in the middle of an escape.
    """
    if not text.startswith(WRAPPED):
        return text
    inner = text[len(WRAPPED) :].rpartition("', annotations=")[0] or text[len(WRAPPED) :]
    shown = INCOMPLETE.sub("", inner).replace("\\'", "'").replace("\\n", "\n").replace("\\\\", "\\")
    found = FIRST_TEXT.search(shown)
    if found is None:
        return shown
    try:
        return str(json.loads(f'"{INCOMPLETE.sub("", found[1])}"', strict=False))
    except ValueError:
        return found[1]


def words(text: str) -> set[str]:
    """Return the words, numbers, paths and addresses of a text."""
    return set(WORD.findall(text))
