"""Scenario: the quality of `find` on public data sets compared with plain BM25, and the time of a query.

A query counts as a hit if one of the tools it wants is among the first. The figures that count are those of the unseen
part of each set: weights are chosen on the other part (`bench/find_sets.py`).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import log

from bench import find_sets
from bench.find_sets import DataSet, Query
from bench.report import Figures, Goal, Options, Report, Table, cell
from switchboard_mcp.suites.search import Index, SearchDocument
from switchboard_mcp.suites.text_analysis import words

SIZES = (5_000, 50_000)
CUTS = (1, 5)
# Of each part of a set, with `--quick`.
QUICK_QUERIES = 150
TIMED_QUERIES = 200
MAX_RANK = 50

Search = Callable[[str], list[int]]
Searcher = Callable[[list[SearchDocument]], Search]


def run(options: Options) -> Report:
    """Measure every set that is here."""
    sets = find_sets.load()
    gone = find_sets.skipped()
    notes = [f"find: not measured, since not in the data folder: {', '.join(gone)}"] if gone else []
    if not sets:
        return Report(notes=notes)
    searchers: dict[str, Searcher] = {"plain BM25": plain_bm25, "lexical": lexical}
    figures: Figures = {}
    tables = []
    means: dict[str, dict[str, float]] = {}
    for unseen in (True, False):
        part = "unseen" if unseen else "tuned"
        scored = {
            name: {one.name: score(searcher(one.tools), one, queries(one, unseen, options)) for one in sets}
            for name, searcher in searchers.items()
        }
        tables.append(table(f"Finding a tool, {part} part, %", sets, scored, unseen, options))
        for name, by_set in scored.items():
            for of_set, values in by_set.items():
                figures[f"{name}, {of_set}, {part}"] = values
            figures[f"{name}, mean, {part}"] = mean(by_set.values())
        if unseen:
            means = {name: mean(by_set.values()) for name, by_set in scored.items()}
    largest = max(sets, key=lambda one: len(one.tools))
    speed = {
        (name, size): duration(searchers[name], largest, size)
        for name in searchers
        if name != "plain BM25"
        for size in SIZES
    }
    tables.append(
        Table(
            "Finding a tool, ms a query (median)",
            ["search", *(f"{size:,} tools" for size in SIZES)],
            [
                [name, *(cell(speed[name, size], 2) for size in SIZES)]
                for name in searchers
                if (name, SIZES[0]) in speed
            ],
        )
    )
    base = means["plain BM25"]["hit@5"]
    return Report(
        tables=tables,
        goals=[
            Goal(
                "find: lexical over plain BM25, hit@5, unseen",
                means["lexical"]["hit@5"] - base,
                "at least",
                4,
                "points",
            ),
            Goal("find: a query at 5,000 tools", speed["lexical", SIZES[0]], "at most", 3, "ms"),
        ],
        figures=figures,
        notes=notes,
    )


def queries(one: DataSet, unseen: bool, options: Options) -> list[Query]:
    found = one.part(unseen=unseen)
    return found[:QUICK_QUERIES] if options.quick else found


def table(
    title: str,
    sets: list[DataSet],
    scored: dict[str, dict[str, dict[str, float]]],
    unseen: bool,
    options: Options,
) -> Table:
    """Return a table with a row for each set and kind of search, and their means."""
    rows = []
    for one in sets:
        for name, by_set in scored.items():
            values = by_set[one.name]
            count = len(queries(one, unseen, options))
            rows.append([f"{one.name} ({len(one.tools)} tools, {count} queries), {name}", *cells(values)])
    rows.extend([f"mean over sets, {name}", *cells(mean(by_set.values()))] for name, by_set in scored.items())
    return Table(title, ["set", *(f"hit@{cut}" for cut in CUTS), "MRR"], rows)


def cells(values: dict[str, float]) -> list[str]:
    return [cell(value, 1) for value in values.values()]


def mean(values: object) -> dict[str, float]:
    found: list[dict[str, float]] = list(values)  # type: ignore[call-overload]
    return {key: sum(one[key] for one in found) / len(found) for key in found[0]}


def score(search: Search, one: DataSet, queries: list[Query]) -> dict[str, float]:
    """Return hits and mean reciprocal rank of a search, in percent."""
    names = [{tool.name, f"{tool.server}/{tool.name}"} for tool in one.tools]
    ranks = []
    for query in queries:
        found = search(query.text)
        ranks.append(next((n for n, at in enumerate(found, 1) if names[at] & query.wanted), 0))
    total = len(queries) / 100
    hits = {f"hit@{cut}": sum(0 < rank <= cut for rank in ranks) / total for cut in CUTS}
    return {**hits, "MRR": sum(1 / rank for rank in ranks if rank) / total}


def duration(searcher: Searcher, one: DataSet, size: int) -> float:
    """Return the median milliseconds of a query over many tools: those of one set, repeated."""
    search = searcher((one.tools * (size // len(one.tools) + 1))[:size])
    search("warm up, pleas")
    times = []
    for query in one.queries[:TIMED_QUERIES]:
        began = time.perf_counter()
        search(query.text)
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1000


def lexical(tools: list[SearchDocument]) -> Search:
    """Return the search of `find`."""
    index = Index(tools)
    return lambda text: [hit.place for hit in index.search(text, MAX_RANK)]


def plain_bm25(tools: Sequence[SearchDocument], saturation: float = 1.2, share: float = 0.75) -> Search:
    """Return textbook BM25 over the words of name and description, for comparison."""
    documents = [[*words(tool.name), *re.findall(r"[a-z0-9]+", tool.description.lower())] for tool in tools]
    average = sum(map(len, documents)) / len(documents)
    postings: dict[str, dict[int, float]] = {}
    for place, document in enumerate(documents):
        drag = saturation * (1 - share + share * len(document) / average)
        for word, count in Counter(document).items():
            postings.setdefault(word, {})[place] = count * (saturation + 1) / (count + drag)

    def search(text: str) -> list[int]:
        scores: dict[int, float] = {}
        for word in set(re.findall(r"[a-z0-9]+", text.lower())):
            holders = postings.get(word, {})
            rarity = log(1 + (len(documents) - len(holders) + 0.5) / (len(holders) + 0.5))
            for place, gained in holders.items():
                scores[place] = scores.get(place, 0.0) + rarity * gained
        return sorted(scores, key=lambda place: (-scores[place], place))[:MAX_RANK]

    return search
