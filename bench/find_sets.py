"""The data sets of the scenario `find`: tools, and queries with the tools that answer them.

None of them is part of the repository; a set whose files are missing is skipped. `bench/data.py` names the folder, and
`bench/README.md` the sources and licences. A query belongs to one of two parts by a hash of its text: `tuned` is for
choosing weights, `unseen` is for the figures that count.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.data import FOLDER, LIVE_TASKS, LIVE_TOOLS
from switchboard_mcp.suites.search import SearchDocument

# Queries of one set, at most: two sets have thousands, and would only take time.
MAX_QUERIES = 1_500


@dataclass(frozen=True)
class Query:
    text: str
    wanted: frozenset[str]
    """Names of the tools that count as found; with the server's name if a set has equal names, as `server/name`."""

    @property
    def is_unseen(self) -> bool:
        return sha256(self.text.encode()).digest()[0] % 2 == 1


@dataclass(frozen=True)
class DataSet:
    name: str
    tools: list[SearchDocument]
    queries: list[Query]

    def part(self, *, unseen: bool) -> list[Query]:
        """Return the queries of one part; always the same ones if there are too many."""
        found = [query for query in self.queries if query.is_unseen is unseen]
        found.sort(key=lambda query: sha256(query.text.encode()).digest())
        return found[:MAX_QUERIES]


def load() -> list[DataSet]:
    """Return all sets whose files exist."""
    sets = []
    for files, read in SETS:
        if all(file.exists() for file in files):
            sets.extend(read())
    return sets


def skipped() -> list[str]:
    """Return the files that are missing."""
    return [str(file.relative_to(FOLDER)) for files, _ in SETS for file in files if not file.exists()]


# LiveMCPBench: servers of the real world; the task as a person put it, and the single steps of the annotator.


def live() -> list[DataSet]:
    tools = []
    for server in json.loads(gzip.decompress(LIVE_TOOLS.read_bytes())):
        for name, listed in server["tools"].items():
            for tool in listed["tools"]:
                about = server.get("description") or ""
                tools.append(document(tool, name, about, tool.get("inputSchema")))
    tasks = json.loads(LIVE_TASKS.read_bytes())
    return [
        DataSet(
            "LiveMCPBench steps",
            tools,
            unique(
                Query(step, used(task))
                for task in tasks
                for step in lines(task["Annotator Metadata"]["Steps"])
            ),
        ),
        DataSet("LiveMCPBench tasks", tools, unique(Query(task["Question"], used(task)) for task in tasks)),
    ]


def used(task: dict[str, Any]) -> frozenset[str]:
    return frozenset(lines(task["Annotator Metadata"]["Tools"]))


def lines(text: str) -> list[str]:
    """Return numbered lines without their numbers."""
    return [re.sub(r"^\s*\d+[.)]\s*", "", line).strip() for line in text.splitlines() if line.strip()]


# BFCL: functions as their authors described them to a model, and what people asked of them.
BFCL = next(iter(sorted(FOLDER.glob("bfcl_eval-*.whl"), reverse=True)), FOLDER / "bfcl_eval-*.whl")
BFCL_FILES = ("live_multiple", "multiple", "parallel_multiple", "live_parallel_multiple")


def bfcl() -> list[DataSet]:
    tools: dict[str, SearchDocument] = {}
    queries = []
    with zipfile.ZipFile(BFCL) as package:
        for file in BFCL_FILES:
            answers = {
                row["id"]: row["ground_truth"]
                for row in rows(package.read(f"bfcl_eval/data/possible_answer/BFCL_v4_{file}.json").decode())
            }
            for row in rows(package.read(f"bfcl_eval/data/BFCL_v4_{file}.json").decode()):
                for function in row["function"]:
                    tools.setdefault(function["name"], document(function, "", "", function.get("parameters")))
                user_turns = [turn["content"] for turn in row["question"][0] if turn["role"] == "user"]
                wanted = frozenset(name for call in answers[row["id"]] for name in call)
                if user_turns and wanted:
                    queries.append(Query(user_turns[-1], wanted))
    return [DataSet("BFCL", list(tools.values()), unique(queries))]


# Bifrost: tasks over the servers of a few products, without schemas.
BIFROST = FOLDER / "bifrost-benchmarking" / "mcp-code-mode-benchmark"
BIFROST_TOOLS = BIFROST / "mcp_tools" / "round3.json"
BIFROST_TASKS = tuple(
    BIFROST / "eval_tasks" / name for name in ("eval_tasks.json", "eval_tasks_r2.json", "eval_tasks_r3.json")
)


def bifrost() -> list[DataSet]:
    tools = [
        SearchDocument(tool["tool_name"], tool["description"], tool["server"])
        for tool in json.loads(BIFROST_TOOLS.read_bytes())
    ]
    queries = [
        Query(task["query"], frozenset(task["expected_tools"]))
        for file in BIFROST_TASKS
        for task in json.loads(file.read_bytes())
    ]
    return [DataSet("Bifrost", tools, unique(queries))]


# StableToolBench: thousands of web APIs, and requests that often need several of them.
STABLE = FOLDER / "StableToolBench" / "solvable_queries" / "test_instruction"
STABLE_FILES = tuple(
    STABLE / f"{group}.json"
    for group in (
        "G1_category",
        "G1_instruction",
        "G1_tool",
        "G2_category",
        "G2_instruction",
        "G3_instruction",
    )
)


def stable() -> list[DataSet]:
    tools: dict[tuple[str, str], SearchDocument] = {}
    queries = []
    for file in STABLE_FILES:
        for row in json.loads(file.read_bytes()):
            for api in row["api_list"]:
                parameters = [*api["required_parameters"], *api["optional_parameters"]]
                tools[api["tool_name"], api["api_name"]] = SearchDocument(
                    api["api_name"],
                    api["api_description"] or "",
                    api["tool_name"],
                    "",
                    " ".join(f"{one['name']} {one.get('description') or ''}" for one in parameters),
                )
            wanted = frozenset(f"{server}/{name}" for server, name in row["relevant APIs"])
            queries.append(Query(row["query"], wanted))
    return [DataSet("StableToolBench", list(tools.values()), unique(queries))]


# MetaTool: plugins with one sentence each, and what people would ask them.
META = FOLDER / "MetaTool" / "dataset"
META_FILES = (META / "plugin_des.json", META / "big_tool_des.json", META / "data" / "all_clean_data.csv")


def meta() -> list[DataSet]:
    known = {**json.loads(META_FILES[0].read_bytes()), **json.loads(META_FILES[1].read_bytes())}
    with META_FILES[2].open(encoding="utf-8", errors="replace", newline="") as file:
        queries = [
            Query(row["Query"], frozenset([row["Tool"]]))
            for row in csv.DictReader(file)
            if row["Tool"] in known
        ]
    tools = [SearchDocument(name, text) for name, text in known.items()]
    return [DataSet("MetaTool", tools, unique(queries))]


# Seal-Tools: four thousand generated APIs of all fields, and requests for one or several.
SEAL = FOLDER / "Seal-Tools" / "Seal-Tools_Dataset"
SEAL_FILES = (SEAL / "tool.jsonl", SEAL / "test_in_domain.jsonl", SEAL / "test_out_domain.jsonl")


def seal() -> list[DataSet]:
    tools = [
        SearchDocument(
            tool["api_name"],
            tool["api_description"],
            "",
            "",
            " ".join(f"{name} {one.get('description', '')}" for name, one in tool["parameters"].items()),
        )
        for tool in rows(SEAL_FILES[0].read_text())
    ]
    queries = [
        Query(row["query"], frozenset(call["api"] for call in row["calling"]))
        for file in SEAL_FILES[1:]
        for row in rows(file.read_text())
    ]
    return [DataSet("Seal-Tools", tools, unique(queries))]


SETS: tuple[tuple[tuple[Path, ...], Callable[[], list[DataSet]]], ...] = (
    ((LIVE_TOOLS, LIVE_TASKS), live),
    ((BFCL,), bfcl),
    ((BIFROST_TOOLS, *BIFROST_TASKS), bifrost),
    (STABLE_FILES, stable),
    (META_FILES, meta),
    (SEAL_FILES, seal),
)


def document(tool: dict[str, Any], server: str, about: str, schema: object) -> SearchDocument:
    """Return a tool as `find` sees those of children."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    docs = (value.get("description", "") for value in properties.values() if isinstance(value, dict))
    parameters = " ".join((*properties, *(doc for doc in docs if isinstance(doc, str))))
    return SearchDocument(tool["name"], tool.get("description") or "", server, about, parameters)


def rows(text: str) -> Iterator[dict[str, Any]]:
    """Return the objects of a text with one per line."""
    return (json.loads(line) for line in text.splitlines() if line.strip())


def unique(queries: Iterable[Query]) -> list[Query]:
    """Return each text once, with all the tools that any of its rows wants."""
    found: dict[str, frozenset[str]] = {}
    for query in queries:
        found[query.text] = found.get(query.text, frozenset()) | query.wanted
    return [Query(text, wanted) for text, wanted in found.items()]
