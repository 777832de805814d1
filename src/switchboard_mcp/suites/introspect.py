"""Builds the result of `introspect`: a child's tools, described within a token budget.

If the request does not name a verbosity, the levels of `LADDER` are tried in order until the whole result fits the
budget; what does not fit at the last level is split into pages. A requested verbosity is honoured, limited only by the
page size. Not aware of how tools were fetched, which were denied, or how the result is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.suites.detail_levels import (
    FULL,
    LADDER,
    SIGNATURE,
    SUMMARY,
    WHOLE,
    Level,
    ToolView,
    decoded_schema,
    describe,
)
from switchboard_mcp.suites.fuzzy import nearest, rank
from switchboard_mcp.suites.sanitize import ELLIPSIS
from switchboard_mcp.suites.summary import one_line
from switchboard_mcp.suites.token_estimate import estimate

VERBOSITIES = ("names", "signature", "summary", "full")
PAGE_TOOLS = 200
# Claude Code cuts the output of a tool at 25,000 tokens; the estimate and the wrapping need room below that.
PAGE_TOKENS = 20_000
PART_TOKENS = PAGE_TOKENS - 200
# Share of the budget for the child's instructions.
INSTRUCTIONS_SHARE = 0.25
# Matches below this share of the best score are usually noise.
QUERY_FLOOR = 0.4
# No schema shrinks tenfold, and a token is about four bytes: beyond this, compaction is not worth trying.
HOPELESS_BYTES_PER_TOKEN = 40


class IntrospectRequest(Struct, frozen=True):
    """The arguments of an introspect request; empty if not given."""

    subtool: str = ""
    query: str = ""
    verbosity: str = ""
    cursor: str = ""


class IntrospectSettings(Struct, frozen=True):
    """The suite's settings for introspection."""

    mode: str = "summary"
    summary_max_chars: int = 160
    budget_tokens: int = 1200


FORCED = {
    "names": Level("names", 100),
    "signature": SIGNATURE,
    "summary": SUMMARY,
    "full": FULL,
}
SIGNATURES = LADDER[LADDER.index(SIGNATURE) :]
PAGED = Level("names", 60)
REDACTED = Level("names", WHOLE)
CURSOR_MARKS = {"names": "n", "signature": "s", "summary": "c", "full": "f"}

PART_MARK = "p"
NEXT_PART = "The parts joined are the tool as JSON. Next part: the same subtool with this cursor."
FIRST_PART = "Its texts are cut. All of it comes in parts: the same subtool with this cursor."
CUT_TEXTS = "A text that ends with … is whole with subtool=NAME."
NO_TOOLS = "This child offers no tools."
REDACTED_NOTE = "Parameters are not shown here."
MORE = {
    "names": "Introspect with subtool=NAME for its schema, query=WORDS for fewer tools, verbosity=signature for all.",
    "signature": "Introspect with subtool=NAME for its schema, query=WORDS for fewer tools.",
}


class _Plan(Struct, frozen=True):
    """The tools to show, the index of the first one, and the levels of detail to try."""

    tools: Sequence[ToolView]
    levels: tuple[Level, ...]
    forced: bool
    budget: int
    query: str = ""
    start: int = 0


def answer(
    child: str,
    tools: Sequence[ToolView],
    request: IntrospectRequest,
    settings: IntrospectSettings,
    instructions: str = "",
    if_none: str = NO_TOOLS,
    whole: ToolView | None = None,
) -> bytes | Failure:
    """Return the introspect result as compact JSON, or a failure.

    `if_none` is the text if there are no tools, `whole` the requested subtool without truncated texts.
    """
    if request.verbosity and request.verbosity not in VERBOSITIES:
        allowed = ", ".join(VERBOSITIES)
        message = f"Child {child!r}: verbosity must be one of {allowed}, not {request.verbosity!r}."
        return failure("bad_arguments", message, child=child, hint="Use one of these, or omit it.")
    if request.subtool:
        return _one(child, tools, request, settings, whole)
    plan = _plan(child, tools, request, settings)
    if isinstance(plan, Failure):
        return plan
    if not plan.tools:
        return _no_tools(tools, plan, instructions, if_none)
    return _Pages(plan, settings, instructions if plan.start == 0 else "").best()


def _one(
    child: str,
    tools: Sequence[ToolView],
    request: IntrospectRequest,
    settings: IntrospectSettings,
    whole: ToolView | None,
) -> bytes | Failure:
    """Return one tool in full, regardless of the budget.

    A tool too large for hosts comes with truncated texts, and a cursor for all of it in parts.
    """
    name = request.subtool
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        return failure(
            "subtool_unknown",
            f"Child {child!r} has no subtool {name!r}.",
            child=child,
            subtool=name,
            nearest=nearest(name, (tool.name for tool in tools)),
        )
    if settings.mode == "redacted":
        return _assemble([_entry(tool, None, REDACTED, settings)], {"detail": "names", "more": REDACTED_NOTE})
    entry = _entry(whole or tool, None, FORCED["full"], settings)
    if request.cursor:
        return _part(child, name, entry, request.cursor)
    if estimate(entry) <= PAGE_TOKENS:
        return _assemble([entry], {"detail": "full"})
    cut = _entry(tool, None, FORCED["full"], settings)
    first = f"{PART_MARK}0.{_entry_stamp(entry)}"
    if estimate(cut) > PAGE_TOKENS:
        return _part(child, name, entry, first)
    return _assemble([cut], {"detail": "full", "truncated": True, "cursor": first, "more": FIRST_PART})


def _part(child: str, name: str, entry: bytes, cursor: str) -> bytes | Failure:
    """Return one part of a tool that is too large for one result. All parts together are the tool as JSON."""
    text, stamp = entry.decode(), _entry_stamp(entry)
    mark, _, fingerprint = cursor.partition(".")
    number = mark.removeprefix(PART_MARK)
    if mark == number or not (number.isascii() and number.isdigit() and len(number) < 10):
        return _bad_cursor(child, f"It was not issued for subtool {name!r}.")
    start = int(number)
    if fingerprint != stamp or start >= len(text):
        return _bad_cursor(child, "The child's tools have changed since it was issued.")
    end = start + _part_chars(text[start:])
    shown = {"name": name, "from": start, "to": end, "of": len(text), "json": text[start:end]}
    tail: dict[str, object] = {"detail": "full"}
    if end < len(text):
        tail |= {"truncated": True, "cursor": f"{PART_MARK}{end}.{stamp}", "more": NEXT_PART}
    return _assemble([msgspec.json.encode(shown)], tail)


def _entry_stamp(entry: bytes) -> str:
    """Return a checksum of one tool, so that parts of two versions are never joined."""
    return f"{crc32(entry):08x}"


def _part_chars(text: str) -> int:
    """Return how many characters of a text fit into one result. JSON in JSON is longer, by its quotation marks."""
    chars = len(text)
    while (cost := estimate(msgspec.json.encode(text[:chars]))) > PART_TOKENS:
        chars = min(chars - 1, int(chars * PART_TOKENS / cost))
    return max(chars, 1)


def _plan(
    child: str, tools: Sequence[ToolView], request: IntrospectRequest, settings: IntrospectSettings
) -> _Plan | Failure:
    place = _Place(query=request.query)
    if request.cursor:
        read = _read_cursor(request.cursor)
        if read is None or (request.query and request.query != read.query):
            return _bad_cursor(child, "This suite did not issue it for this query.")
        place = read
    chosen: Sequence[ToolView] = tools
    if place.query.strip():
        documents = [(tool.name, tool.description) for tool in tools]
        chosen = [tools[index] for index in rank(place.query, documents, QUERY_FLOOR)]
    if request.cursor and (place.stamp != _stamp(chosen) or place.start >= len(chosen)):
        return _bad_cursor(child, "The child's tools have changed since it was issued.")
    detail = request.verbosity or place.detail or ("full" if settings.mode == "full" else "")
    budget = PAGE_TOKENS if detail else min(settings.budget_tokens, PAGE_TOKENS)
    if settings.mode == "redacted":
        levels = (REDACTED,) if detail else (REDACTED, *(step for step in LADDER if step.detail == "names"))
    elif detail:
        levels = (FORCED[detail],)
    else:
        levels = SIGNATURES if settings.mode == "signature" else LADDER
    if request.cursor and not detail:
        levels = (PAGED,)
    return _Plan(chosen, levels, bool(detail), budget, place.query, place.start)


class _Pages:
    """Finds the level of detail that fits the budget. Each schema is decoded once, however many levels are tried."""

    def __init__(self, plan: _Plan, settings: IntrospectSettings, instructions: str) -> None:
        self.plan = plan
        self.settings = settings
        self.instructions = instructions
        self.instruction_tokens = min(int(plan.budget * INSTRUCTIONS_SHARE), estimate(instructions))
        self.decoded: dict[int, object] = {}
        self.has_results = any(isinstance(tool.output_schema, Raw) for tool in plan.tools)

    def best(self) -> bytes:
        plan = self.plan
        for level in plan.levels:
            if level.has_result and not plan.forced and not self.has_results:
                continue  # the next level is the same
            entries = self.entries(level)
            if len(entries) == len(plan.tools) - plan.start:
                written = self.written(level, entries)
                if estimate(written) <= plan.budget:
                    return written
        level = plan.levels[0] if plan.forced else PAGED
        entries = self.entries(level)
        written = self.written(level, entries)
        while len(entries) > 1 and estimate(written) > plan.budget:
            entries.pop()
            written = self.written(level, entries)
        return written

    def entries(self, level: Level) -> list[bytes]:
        """Render as many tools as fit the budget and the page, but at least one."""
        plan = self.plan
        tools = plan.tools[plan.start : plan.start + PAGE_TOOLS]
        room = plan.budget - estimate(_assemble([], self.tail(level, len(tools)))) - self.instruction_tokens
        if level.detail == "summary" and not plan.forced and self.is_hopeless(tools):
            return []
        entries: list[bytes] = []
        for place, tool in enumerate(tools, plan.start):
            entry = _entry(tool, self.schema(place, tool, level), level, self.settings)
            # A separate entry is estimated up to one token higher than within the whole, which is measured in the end.
            room -= estimate(entry) - 1
            if room < 0 and entries:
                break
            entries.append(entry)
        return entries

    def is_hopeless(self, tools: Sequence[ToolView]) -> bool:
        sizes = sum(len(bytes(tool.input_schema)) for tool in tools if isinstance(tool.input_schema, Raw))
        return sizes > self.plan.budget * HOPELESS_BYTES_PER_TOKEN

    def schema(self, place: int, tool: ToolView, level: Level) -> object:
        if level.detail not in ("summary", "signature"):
            return None
        if place not in self.decoded:
            self.decoded[place] = decoded_schema(tool)
        return self.decoded[place]

    def written(self, level: Level, entries: list[bytes]) -> bytes:
        """Return the page, with as much of the instructions as their share and the remaining budget allow."""
        tail = self.tail(level, len(entries))
        bare = _assemble(entries, tail)
        if not self.instructions:
            return bare
        room = max(self.instruction_tokens, self.plan.budget - estimate(bare)) - 8
        text = _clip(self.instructions, room)
        return _assemble(entries, {**tail, "instructions": text}) if text else bare

    def tail(self, level: Level, shown: int) -> dict[str, object]:
        """Return the members after the tools: detail, cursor and hints."""
        plan = self.plan
        tail: dict[str, object] = {"detail": level.detail}
        more = REDACTED_NOTE if self.settings.mode == "redacted" else MORE.get(level.detail, "")
        if level.detail == "full" and any(
            ELLIPSIS in tool.description or ELLIPSIS.encode() in bytes(tool.input_schema or b"")
            for tool in plan.tools[plan.start : plan.start + shown]
        ):
            more = CUT_TEXTS
        end = plan.start + shown
        if end < len(plan.tools):
            tail["truncated"] = True
            tail["total"] = len(plan.tools)
            tail["cursor"] = _cursor(plan, level, end)
            more = f"{more} Next page: the cursor.".strip()
        if more:
            tail["more"] = more
        return tail


def _entry(tool: ToolView, schema: object, level: Level, settings: IntrospectSettings) -> bytes:
    """Render one tool at a level of detail."""
    return msgspec.json.encode(
        {"name": tool.name, **describe(tool, schema, level, settings.summary_max_chars)}
    )


def _no_tools(tools: Sequence[ToolView], plan: _Plan, instructions: str, if_none: str) -> bytes:
    tail: dict[str, object] = {"detail": plan.levels[0].detail}
    if tools:
        tail["more"] = f"No tool matches this query. Omit it to list all {len(tools)}."
    else:
        tail["more"] = if_none
        text = _clip(instructions, int(plan.budget * INSTRUCTIONS_SHARE))
        if text:
            tail["instructions"] = text
    return _assemble([], tail)


def _assemble(entries: list[bytes], tail: dict[str, object]) -> bytes:
    return b'{"tools":[' + b",".join(entries) + b"]," + msgspec.json.encode(tail)[1:]


def _clip(text: str, tokens: int) -> str:
    """Truncate a text to a number of tokens, without blank lines, preferably after a line or sentence."""
    lines = [one_line(line) for line in text.splitlines()]
    whole = "\n".join(line for line in lines if line)
    if not whole or tokens < 1:
        return ""
    cost = estimate(whole)
    chars = len(whole)
    while cost > tokens:
        chars = min(int(chars * tokens / cost), chars - 1)
        if chars < 1:
            return ""
        cut = whole[:chars]
        ends = (max(cut.rfind("\n"), cut.rfind(". ") + 1), cut.rfind(" "), chars)
        cut = cut[: next(end for end in ends if end > chars // 2)]
        cost = estimate(cut)
        if cost <= tokens:
            return cut.rstrip() + " …"
    return whole


class _Place(Struct, frozen=True):
    """The content of a cursor."""

    query: str = ""
    detail: str = ""
    start: int = 0
    stamp: str = ""


def _cursor(plan: _Plan, level: Level, start: int) -> str:
    """Encode the requested detail, the index of the next tool, a checksum of the list, and the query."""
    mark = CURSOR_MARKS[level.detail] if plan.forced else ""
    cursor = f"{mark}{start}.{_stamp(plan.tools)}"
    return f"{cursor}.{plan.query}" if plan.query else cursor


def _read_cursor(cursor: str) -> _Place | None:
    first, _, rest = cursor.partition(".")
    stamp, _, query = rest.partition(".")
    detail = next((detail for detail, mark in CURSOR_MARKS.items() if first.startswith(mark)), "")
    number = first[1:] if detail else first
    if not (number.isascii() and number.isdigit() and len(number) < 10) or int(number) == 0:
        return None
    return _Place(query, detail, int(number), stamp)


def _stamp(tools: Sequence[ToolView]) -> str:
    """Return a checksum of the tool list, so that a page never silently skips or repeats a tool."""
    return f"{crc32(chr(0).join(tool.name for tool in tools).encode('utf-8', 'surrogatepass')):08x}"


def _bad_cursor(child: str, reason: str) -> Failure:
    return failure("cursor_invalid", f"The cursor for child {child!r} is not valid. {reason}", child=child)
