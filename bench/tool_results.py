"""Scenario: tokens of recorded tool results that reach a model, and the cost of reading on.

The data has the results of one agent's runs and its final answers. A word of a result counts as needed if it occurs in
a later call or in the answer, neither in the task nor before, nor in more than 8 % of all tasks. If a shortened answer
lacks such a word, reading on is counted: *targeted* are searches with the handle until each word was seen, *paged* are
pages until then, *whole* are all further pages. *Always* reads every shortened result to its end, needed or not.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bench import data
from bench.report import Figures, Goal, Options, Report, Table
from switchboard_mcp.cli.commands.tokens import choose_counter
from switchboard_mcp.config.results import ResultSettings
from switchboard_mcp.gateway.results.handles import HandleStore
from switchboard_mcp.gateway.results.shaping import FIND_TOKENS, ResultShaper, Shaped, in_form
from switchboard_mcp.gateway.results.usage_file import CountKeeper
from switchboard_mcp.hosts.traits import traits_of
from switchboard_mcp.suites.results.answers import lines_with, page_of, read_result
from switchboard_mcp.suites.results.counts import REQUEST_TOKENS
from switchboard_mcp.suites.results.select import SelectError, compile_select
from switchboard_mcp.suites.suite_arguments import SuiteCall

CALLS = data.FOLDER / "results" / "trajectories.json.gz"
ANSWERS = data.FOLDER / "results" / "answers.json.gz"
WORD = re.compile(r"[\w./:@-]{4,}")
NAME = re.compile(r"[A-Za-z_]\w*")
MAX_WORDS = 8
# A word of more tasks says nothing about one of them.
COMMON_SHARE = 0.08
JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]', re.DOTALL)
WRAPPED = "meta=None content=[TextContent(type='text', text='"
INCOMPLETE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u[0-9a-fA-F]{0,3})?$")
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
FIRST_TEXT = re.compile(r'"text": "((?:[^"\\]|\\.)*)')
# The default shortens only what a host would cut; this is the threshold that pays.
SHORTENED = ResultSettings(max_tokens=3_000, compact="auto", tables="auto")
SETTINGS = {
    "as they came": ResultSettings(compact="off", max_tokens=0),
    "above 3,000 tokens": SHORTENED,
    "compaction on": ResultSettings(max_tokens=3_000, compact="on", tables="auto"),
    "compaction on, no tables": ResultSettings(max_tokens=3_000, compact="on"),
}
# A host that shows its model text; results in the data are text.
HOST = traits_of("opencode", "1.18.33")
HANDLE = "r012345678901"
READINGS = ("targeted", "paged", "whole", "always")
LARGE_TOKENS = 500
Count = Callable[[str], int]


class Recorded(NamedTuple):
    """One call: its server and tool, its text, and the words of it that were needed later."""

    tool: str
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
        row = figures[name] = {**found, "saved %": 100 * (1 - found["shown"] / whole)}
        for kind in READINGS:
            row[f"net {kind} %"] = 100 * (1 - (found["shown"] + found[kind]) / whole)
        nets = [f"{row[f'net {kind} %']:.1f}" for kind in READINGS]
        cost = f"{found['us per KB']:.0f}"
        rows.append([name, f"{found['shortened']:.0f}", f"{row['saved %']:.1f}", *nets, cost])
    heads = ["results", "shortened", "saved %", *(f"net {kind} %" for kind in READINGS), "µs per KB"]
    figures["select"] = picked = measure_select(calls, count)
    goals = [
        Goal(
            "tokens of results saved above 3,000 tokens, targeted reads",
            figures["above 3,000 tokens"]["net targeted %"],
            "at least",
            10,
            " %",
        ),
        Goal("the same with compaction on", figures["compaction on"]["net targeted %"], "at least", 20, " %"),
        *(
            Goal(
                f"saved above 3,000 tokens, {kind} reads",
                figures["above 3,000 tokens"][f"net {kind} %"],
                "at least",
                0,
                " %",
            )
            for kind in READINGS[1:]
        ),
        Goal(
            "saved with compaction on, whatever is read",
            min(figures["compaction on"][f"net {kind} %"] for kind in READINGS),
            "at least",
            0,
            " %",
        ),
        Goal(
            "needed words that cannot be read any more", figures["above 3,000 tokens"]["lost"], "at most", 0
        ),
        Goal(
            "JSON results above 500 tokens, saved by select", picked["select saved %"], "at least", 80, " %"
        ),
    ]
    title = f"Results that reach the model: {len(calls)} recorded calls, {whole:,} tokens ({counter})"
    selected = [
        [
            name,
            f"{picked[f'{key} results']:.0f}",
            f"{picked[f'{key} saved %']:.1f}",
            f"{picked[f'{key} found %']:.1f}",
            f"{picked[f'{key} us per KB']:.0f}",
        ]
        for name, key in (("JSON, by select", "select"), ("text, by find", "find"))
    ]
    tables = [
        Table(title, heads, rows),
        Table(
            f"Results above {LARGE_TOKENS} tokens, if the call asks for what is needed",
            ["results", "number", "saved %", "needed words found %", "µs per KB"],
            selected,
        ),
    ]
    return Report(tables=tables, goals=goals, figures=figures)


def make_shaper(settings: ResultSettings) -> ResultShaper:
    """Return what shapes results; nothing is stored."""
    loop = asyncio.new_event_loop()
    store = HandleStore(loop)
    loop.close()
    return ResultShaper(settings, "suite", store, CountKeeper("", "child", loop))


def measure(calls: list[Recorded], settings: ResultSettings, count: Count) -> dict[str, float]:
    """Return tokens shown, tokens of reading on in each way, and the time that shaping took."""
    shaper = make_shaper(settings)
    totals: dict[str, float] = dict.fromkeys(("shown", "shortened", "lost", *READINGS), 0)
    read_whole: dict[str, int] = {}
    size = 0
    spent = 0.0
    for call in calls:
        body = encoded(call.text)
        began = time.perf_counter()
        shaped = shaper.shape(body, SuiteCall(), HANDLE, HOST)
        spent += time.perf_counter() - began
        size += len(body)
        text = shown_text(shaped)
        totals["shown"] += count(text)
        if not shaped.kept:
            continue
        totals["shortened"] += 1
        for kind, tokens in read_on(call, settings, shaped, text, count).items():
            totals[kind] += tokens
        if read_whole.get(call.tool, 0) >= shaped.tokens:  # read to the end before, so it comes whole now
            totals["always"] += count(call.text) - count(text)
        else:
            read_whole[call.tool] = shaped.tokens
            totals["always"] += sum(page_costs(settings, shaped, count))
    return {**totals, "us per KB": spent * 1e6 / (size / 1024)}


def read_on(
    call: Recorded, settings: ResultSettings, shaped: Shaped, text: str, count: Count
) -> dict[str, float]:
    """Return what it costs to see each needed word that a shortened answer lacks."""
    kept = in_form(call.text, shaped.form)
    lacking = {word for word in call.needed if word not in text}
    costs: dict[str, float] = {"lost": sum(word not in kept for word in lacking)}
    if not lacking:
        return costs
    costs["targeted"] = 0
    searched = set(lacking)
    while searched:
        words = sorted(searched, key=len)[-MAX_WORDS:]
        found = lines_with(kept, " ".join(words), FIND_TOKENS, bool)
        costs["targeted"] += REQUEST_TOKENS + count(found)
        seen = {word for word in searched if word in found}
        searched -= seen or set(words)
    pages = page_costs(settings, shaped, count)
    costs["whole"] = sum(pages)
    last = max(kept.find(word, shaped.shown) for word in lacking)
    position, costs["paged"] = shaped.shown, 0
    for number, cost in enumerate(pages, 2):
        if position > last:
            break
        costs["paged"] += cost
        position += len(page_of(kept, number, settings.max_tokens or 0, shaped.shown, shaped.shown_end)[0])
    return costs


def page_costs(settings: ResultSettings, shaped: Shaped, count: Count) -> list[int]:
    """Return the tokens of each further page of a shortened result, with its request."""
    result = read_result(shaped.kept)
    assert result is not None
    kept = in_form(result.text, shaped.form)
    shown, end = shaped.shown, shaped.shown_end
    _, pages = page_of(kept, 1, settings.max_tokens or 0, shown, end)
    unseen = range(2, pages if end else pages + 1)
    texts = [page_of(kept, number, settings.max_tokens or 0, shown, end)[0] for number in unseen]
    return [
        REQUEST_TOKENS + count(f"{page}\n[Page {number} of {pages}.]") for number, page in enumerate(texts, 2)
    ]


def measure_select(calls: list[Recorded], count: Count) -> dict[str, float]:
    """Return what calls save that ask for what was needed: by fields if the result is JSON, by words if it is not."""
    shaper = make_shaper(SHORTENED)
    before: dict[str, float] = {"select": 0, "find": 0}
    after = {**before}
    number = {**before}
    needed = {**before}
    found = {**before}
    spent = {**before}
    kib = {**before}
    for call in calls:
        size = count(call.text)
        if size <= LARGE_TOKENS:
            continue
        kept = read_result(encoded(call.text))
        assert kept is not None
        try:
            expression = select_for(kept.value(), call.needed)
        except ValueError:
            expression = ""
        words = " ".join(sorted(call.needed, key=len)[-MAX_WORDS:]) or "the"
        way = "select" if expression else "find"
        suite_call = SuiteCall(select=expression, find="" if expression else words)
        body = encoded(call.text)
        began = time.perf_counter()
        shaped = shaper.shape(body, suite_call, HANDLE, HOST)
        spent[way] += (time.perf_counter() - began) * 1e6
        kib[way] += len(body) / 1024
        text = shown_text(shaped)
        before[way] += size
        after[way] += count(text) + count(expression or words)
        number[way] += 1
        needed[way] += len(call.needed)
        found[way] += sum(word in text for word in call.needed)
    figures: dict[str, float] = {}
    for way in before:
        figures[f"{way} results"] = number[way]
        figures[f"{way} us per KB"] = spent[way] / max(kib[way], 1)
        figures[f"{way} saved %"] = 100 * (1 - after[way] / max(before[way], 1))
        figures[f"{way} found %"] = 100 * found[way] / max(needed[way], 1)
    return figures


def select_for(value: object, needed: frozenset[str]) -> str:
    """Return an expression for the fields that have needed words, as a model would write it.

    If not all of them fit into the longest expression, those with the most words are taken.
    """
    paths: dict[str, set[str]] = {}
    _collect(value, "", needed, paths)
    ranked = sorted(paths, key=lambda path: -len(paths[path]))
    for number in range(len(ranked), 0, -1):
        text = _expression([path for path in paths if path in ranked[:number]])
        try:
            compile_select(text)
        except SelectError:
            continue
        return text
    return "length(@)"


def _expression(paths: list[str]) -> str:
    if len(paths) == 1:
        return paths[0]
    lists: dict[str, list[str]] = {}
    for path in paths:
        base, dot, name = path.rpartition("[].")
        lists.setdefault(base + "[]" if dot else "", []).append(name)
    parts = []
    for base, names in lists.items():
        fields = ",".join(f"f{index}:{name}" for index, name in enumerate(names))
        parts.append(f"{base}.{{{fields}}}" if base else f"{{{fields}}}")
    return parts[0] if len(parts) == 1 else f"[{','.join(parts)}]"


def _collect(value: object, path: str, needed: frozenset[str], paths: dict[str, set[str]]) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            own = name if NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
            _collect(item, f"{path}.{own}" if path else own, needed, paths)
    elif isinstance(value, list):
        for item in value:
            _collect(item, f"{path}[]", needed, paths)
    elif path and (found := words(str(value)) & needed):
        paths.setdefault(path, set()).update(found)


def encoded(text: str) -> bytes:
    """Return a result with this text."""
    return json.dumps({"content": [{"type": "text", "text": text}]}).encode()


def shown_text(shaped: Shaped) -> str:
    """Return the text of an answer."""
    text: str = json.loads(shaped.body)["content"][0]["text"]
    return text


def recorded() -> Iterator[Recorded]:
    """Yield the calls, each with the words that were needed after it."""
    with gzip.open(CALLS) as file:
        tasks: list[dict[str, Any]] = json.load(file)["tasks"]
    with gzip.open(ANSWERS) as file:
        answers: dict[str, str] = json.load(file)
    texts_of = [["\n".join(map(unwrapped, call["content"])) for call in task["calls"]] for task in tasks]
    tasks_with: Counter[str] = Counter()
    for task, texts in zip(tasks, texts_of, strict=True):
        tasks_with.update(words("\n".join([*texts, answers.get(task["task"], "")])))
    common = {word for word, number in tasks_with.items() if number > COMMON_SHARE * len(tasks)}
    for task, texts in zip(tasks, texts_of, strict=True):
        calls = task["calls"]
        known = words(task["question"]) | common
        for index, text in enumerate(texts):
            later = words(json.dumps([call["arguments"] for call in calls[index + 1 :]], ensure_ascii=False))
            later |= words(answers.get(task["task"], ""))
            before = known | words(json.dumps(calls[index]["arguments"], ensure_ascii=False))
            tool = f"{calls[index]['server']}/{calls[index]['tool']}"
            yield Recorded(tool, text, frozenset((words(text) & later) - before))
            known |= words(text)


def unwrapped(text: str) -> str:
    """Return the text of a result that was recorded as the representation of an object, cut at some character.

    Inside of that is JSON, whose `text` is wanted. Each layer may end in the middle of an escape.
    """
    if not text.startswith(WRAPPED):
        return text
    inner = text[len(WRAPPED) :].rpartition("', annotations=")[0] or text[len(WRAPPED) :]
    shown = ESCAPE.sub(_unescaped, inner)
    found = FIRST_TEXT.search(shown)
    if found is None:
        return shown
    whole = shown[found.end() : found.end() + 1] == '"'
    text = found[1] if whole else INCOMPLETE.sub("", found[1])
    text = str(json.loads(f'"{text}"', strict=False))
    return text if whole else closed(text)


def closed(text: str) -> str:
    """Return JSON that was cut by the recorder with its last complete value and all brackets closed.

    The server sent complete JSON, so that is what its results are measured as. Other text stays.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return text
    open_brackets: list[str] = []
    best = ""
    for found in JSON_TOKEN.finditer(text):
        token = found[0]
        if token in "{[":
            open_brackets.append("}" if token == "{" else "]")
        elif token in "}]":
            open_brackets.pop()
        if token in "}]," and open_brackets:
            best = text[: found.end() - (token == ",")] + "".join(reversed(open_brackets))
    try:
        json.loads(best)
    except ValueError:
        return text
    return best


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else ESCAPED.get(code, code)


def words(text: str) -> set[str]:
    """Return the words, numbers, paths and addresses of a text."""
    return set(WORD.findall(text))
