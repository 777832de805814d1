"""Scenario: how well `find` does on LiveMCPBench, beside plain BM25, and how long a query takes at 5,000 tools.

A query counts as a hit where one of the tools its annotator used is among the first. Two kinds of query: the task as a
person put it, and the single steps the annotator wrote down.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from bench.data import LIVE_TASKS, LIVE_TOOLS, missing
from bench.report import Figures, Goal, Options, Report, Table, cell
from switchboard_mcp.suites.search import Index, SearchDocument

MANY = 5_000
CUTS = (1, 3, 5)


@dataclass(frozen=True)
class Query:
    text: str
    wanted: frozenset[str]


Search = Callable[[str], list[int]]


def run(options: Options) -> Report:
    if told := missing(LIVE_TOOLS, LIVE_TASKS):
        return Report(notes=[f"find: {told}"])
    entries = tools(LIVE_TOOLS)
    queries = {"steps": steps(LIVE_TASKS), "tasks": tasks(LIVE_TASKS)}
    index, plain = Index(entries), plain_bm25(entries)
    searches: dict[str, Search] = {
        "plain BM25": plain,
        "switchboard": lambda text: [hit.place for hit in index.search(text, 50)],
    }
    figures: Figures = {}
    rows = []
    for kind, asked in queries.items():
        for name, search in searches.items():
            scored = score(search, asked, entries)
            figures[f"{name}, {kind}"] = scored
            rows.append([f"{kind}, {name}", *(cell(value, 1) for value in scored.values())])
    milliseconds = duration(entries, queries["steps"])
    best = {kind: figures[f"switchboard, {kind}"] for kind in queries}
    return Report(
        tables=[
            Table(
                f"Finding a tool among {len(entries)}, % (LiveMCPBench: {len(queries['steps'])} steps, "
                f"{len(queries['tasks'])} tasks)",
                ["queries", *(f"hit@{cut}" for cut in CUTS), "MRR"],
                rows,
            )
        ],
        goals=[
            Goal("find: hit@5 on steps", best["steps"]["hit@5"], "at least", 66, "%"),
            Goal("find: hit@5 on tasks", best["tasks"]["hit@5"], "at least", 64, "%"),
            Goal("find: a query at 5,000 tools", milliseconds, "at most", 3, "ms"),
        ],
        figures=figures,
    )


def tools(path: Path) -> list[SearchDocument]:
    """The tools as `find` sees those of children."""
    entries = []
    for server in json.loads(gzip.decompress(path.read_bytes())):
        for name, listed in server["tools"].items():
            for tool in listed["tools"]:
                properties = (tool.get("inputSchema") or {}).get("properties") or {}
                docs = [
                    value.get("description", "") for value in properties.values() if isinstance(value, dict)
                ]
                entries.append(
                    SearchDocument(
                        tool["name"],
                        tool.get("description") or "",
                        name,
                        server.get("description") or "",
                        " ".join((*properties, *(doc for doc in docs if isinstance(doc, str)))),
                    )
                )
    return entries


def tasks(path: Path) -> list[Query]:
    return [Query(task["Question"], used(task)) for task in json.loads(path.read_bytes())]


def steps(path: Path) -> list[Query]:
    return [
        Query(step, used(task))
        for task in json.loads(path.read_bytes())
        for step in lines(task["Annotator Metadata"]["Steps"])
    ]


def used(task: dict[str, Any]) -> frozenset[str]:
    return frozenset(lines(task["Annotator Metadata"]["Tools"]))


def lines(text: str) -> list[str]:
    """Numbered lines without their numbers."""
    return [re.sub(r"^\s*\d+[.)]\s*", "", line).strip() for line in text.splitlines() if line.strip()]


def score(search: Search, queries: list[Query], entries: list[SearchDocument]) -> dict[str, float]:
    ranks = []
    for query in queries:
        found = search(query.text)
        ranks.append(next((n for n, at in enumerate(found, 1) if entries[at].name in query.wanted), 0))
    total = len(queries) / 100
    hits = {f"hit@{cut}": sum(0 < rank <= cut for rank in ranks) / total for cut in CUTS}
    return {**hits, "MRR": sum(1 / rank for rank in ranks if rank) / total}


def duration(entries: list[SearchDocument], queries: list[Query]) -> float:
    """Milliseconds a query takes, in the mean, over many tools."""
    index = Index((entries * (MANY // len(entries) + 1))[:MANY])
    index.search("warm up, pleas")
    began = time.perf_counter()
    for query in queries:
        index.search(query.text, 5)
    return (time.perf_counter() - began) / len(queries) * 1000


def plain_bm25(entries: list[SearchDocument], saturation: float = 1.2, share: float = 0.75) -> Search:
    """The textbook's, over name and description, for comparison."""
    documents = [re.findall(r"[a-z0-9]+", f"{entry.name} {entry.description}".lower()) for entry in entries]
    counts = [Counter(document) for document in documents]
    holders = Counter(word for count in counts for word in count)
    average = sum(map(len, documents)) / len(documents)

    def search(text: str) -> list[int]:
        wanted = set(re.findall(r"[a-z0-9]+", text.lower()))
        scores: dict[int, float] = {}
        for place, count in enumerate(counts):
            for word in wanted & count.keys():
                rarity = log(1 + (len(counts) - holders[word] + 0.5) / (holders[word] + 0.5))
                drag = saturation * (1 - share + share * len(documents[place]) / average)
                gained = rarity * count[word] * (saturation + 1) / (count[word] + drag)
                scores[place] = scores.get(place, 0.0) + gained
        return sorted(scores, key=lambda place: -scores[place])

    return search
