"""What a suite answers when it is opened.

Owns how much to say about a child's tools within a token budget: which detail, which page, and how to ask for more. It
does not know how tools were fetched, which were denied, or how the answer travels.

Without being told otherwise an answer steps down `LADDER` until the whole of it fits the budget; what does not fit on
the last step is cut into pages. A detail asked for by name is given as asked, cut only by the limits of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.suites.fuzzy import nearest, rank
from switchboard_mcp.suites.schema import compact
from switchboard_mcp.suites.signature import signature
from switchboard_mcp.suites.summary import one_line, summarise
from switchboard_mcp.suites.tokens import estimate

VERBOSITIES = ("names", "signature", "summary", "full")
PAGE_TOOLS = 200
# Claude Code cuts the output of a tool at 25,000 tokens; the estimate and the wrapping need room below that.
PAGE_TOKENS = 20_000
# How much of the budget a child's instructions may take from its tools.
INSTRUCTIONS_SHARE = 0.25
# Matches weaker than this share of the best one are noise more often than what was meant.
QUERY_FLOOR = 0.4
# No schema shrinks tenfold, and a token is about four bytes: beyond this compaction need not be tried.
HOPELESS_BYTES_PER_TOKEN = 40


class ToolView(Struct, frozen=True):
    """One tool as the child sent it, as far as it may be shown."""

    name: str
    description: str = ""
    input_schema: Raw | UnsetType = UNSET


class IntrospectRequest(Struct, frozen=True):
    """What the host wants to see; empty means it did not say."""

    subtool: str = ""
    query: str = ""
    verbosity: str = ""
    cursor: str = ""


class IntrospectSettings(Struct, frozen=True):
    """How the suite is configured to answer."""

    mode: str = "summary"
    summary_max_chars: int = 160
    budget_tokens: int = 1200


class Level(Struct, frozen=True):
    """One step of detail. Summaries are also bounded by the settings."""

    detail: str
    summary_chars: int
    doc_chars: int = 0


WHOLE = 1_000_000
SUMMARY = Level("summary", WHOLE)
SIGNATURE = Level("signature", WHOLE, 60)
FORCED = {
    "names": Level("names", 100),
    "signature": SIGNATURE,
    "summary": SUMMARY,
    "full": Level("full", WHOLE),
}
# Docs go before summaries, summaries before signatures, one-liners before a tool is put on another page.
LADDER = (
    SUMMARY,
    SIGNATURE,
    Level("signature", 100, 30),
    Level("signature", 60),
    Level("names", 100),
    Level("names", 60),
    Level("names", 36),
    Level("names", 0),
)
PAGED = Level("names", 60)
REDACTED = Level("names", WHOLE)
CURSOR_MARKS = {"names": "n", "signature": "s", "summary": "c", "full": "f"}

REDACTED_NOTE = "Parameters are not shown here."
MORE = {
    "names": "Introspect with subtool=NAME for its schema, query=WORDS for fewer tools, verbosity=signature for all.",
    "signature": "Introspect with subtool=NAME for its schema, query=WORDS for fewer tools.",
}


class _Plan(Struct, frozen=True):
    """Which tools to show, from where on, and in how much detail."""

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
) -> bytes | Failure:
    """The introspect answer as compact JSON, or why there is none."""
    if request.verbosity and request.verbosity not in VERBOSITIES:
        allowed = ", ".join(VERBOSITIES)
        message = f"Child {child!r}: verbosity is one of {allowed}, not {request.verbosity!r}."
        return failure("bad_arguments", message, child=child, hint="Use one of these, or leave it out.")
    if request.subtool:
        return _one(child, tools, request.subtool, settings)
    plan = _plan(child, tools, request, settings)
    if isinstance(plan, Failure):
        return plan
    if not plan.tools:
        return _no_tools(tools, plan, instructions)
    return _Pages(plan, settings, instructions if plan.start == 0 else "").best()


def _one(child: str, tools: Sequence[ToolView], name: str, settings: IntrospectSettings) -> bytes | Failure:
    """One tool in full, whatever it costs."""
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
    return _assemble([_entry(tool, None, FORCED["full"], settings)], {"detail": "full"})


def _plan(
    child: str, tools: Sequence[ToolView], request: IntrospectRequest, settings: IntrospectSettings
) -> _Plan | Failure:
    place = _Place(query=request.query)
    if request.cursor:
        read = _read_cursor(request.cursor)
        if read is None or (request.query and request.query != read.query):
            return _bad_cursor(child, "It is not one this suite gave for this question.")
        place = read
    chosen: Sequence[ToolView] = tools
    if place.query.strip():
        documents = [(tool.name, tool.description) for tool in tools]
        chosen = [tools[index] for index in rank(place.query, documents, QUERY_FLOOR)]
    if request.cursor and (place.stamp != _stamp(chosen) or place.start >= len(chosen)):
        return _bad_cursor(child, "The child's tools have changed since it was given.")
    detail = request.verbosity or place.detail or ("full" if settings.mode == "full" else "")
    budget = PAGE_TOKENS if detail else min(settings.budget_tokens, PAGE_TOKENS)
    if settings.mode == "redacted":
        levels = (REDACTED,) if detail else (REDACTED, *(step for step in LADDER if step.detail == "names"))
    elif detail:
        levels = (FORCED[detail],)
    else:
        levels = LADDER[1:] if settings.mode == "signature" else LADDER
    if request.cursor and not detail:
        levels = (PAGED,)
    return _Plan(chosen, levels, bool(detail), budget, place.query, place.start)


class _Pages:
    """Finds the step of detail that fits. Each schema is decoded once, however many steps are tried."""

    def __init__(self, plan: _Plan, settings: IntrospectSettings, instructions: str) -> None:
        self.plan = plan
        self.settings = settings
        self.instructions = instructions
        self.instruction_tokens = min(int(plan.budget * INSTRUCTIONS_SHARE), estimate(instructions))
        self.decoded: dict[int, object] = {}

    def best(self) -> bytes:
        plan = self.plan
        for level in plan.levels:
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
        """Tools from the start of the page on, as many as the budget and a page take, and at least one."""
        plan = self.plan
        tools = plan.tools[plan.start : plan.start + PAGE_TOOLS]
        room = plan.budget - estimate(_assemble([], self.tail(level, len(tools)))) - self.instruction_tokens
        if level is SUMMARY and not plan.forced and self.is_hopeless(tools):
            return []
        entries: list[bytes] = []
        for place, tool in enumerate(tools, plan.start):
            entry = _entry(tool, self.schema(place, tool, level), level, self.settings)
            # Apart, an entry counts for up to a token more than inside the whole, which is measured in the end.
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
            self.decoded[place] = _decoded(tool)
        return self.decoded[place]

    def written(self, level: Level, entries: list[bytes]) -> bytes:
        """The page with as much of the instructions as their share and the room left over allow."""
        tail = self.tail(level, len(entries))
        bare = _assemble(entries, tail)
        if not self.instructions:
            return bare
        room = max(self.instruction_tokens, self.plan.budget - estimate(bare)) - 8
        text = _clip(self.instructions, room)
        return _assemble(entries, {**tail, "instructions": text}) if text else bare

    def tail(self, level: Level, shown: int) -> dict[str, object]:
        """What stands after the tools."""
        plan = self.plan
        tail: dict[str, object] = {"detail": level.detail}
        more = REDACTED_NOTE if self.settings.mode == "redacted" else MORE.get(level.detail, "")
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
    """One tool in the given detail."""
    shown: dict[str, object] = {"name": tool.name}
    if level.detail == "full":
        shown["description"] = tool.description
        if isinstance(tool.input_schema, Raw):
            shown["inputSchema"] = tool.input_schema
        return msgspec.json.encode(shown)
    if level.detail == "signature":
        shown["signature"] = "(…)" if isinstance(schema, Raw) else signature(schema, level.doc_chars)
    summary = summarise(tool.description, min(level.summary_chars, settings.summary_max_chars))
    if summary:
        shown["summary"] = summary
    if level.detail != "summary":
        return msgspec.json.encode(shown)
    try:
        return msgspec.json.encode({**shown, "inputSchema": compact(schema)})
    except (OverflowError, RecursionError):
        # Numbers beyond 64 bits, or nesting without end: as the child sent it.
        return msgspec.json.encode({**shown, "inputSchema": tool.input_schema})


def _decoded(tool: ToolView) -> object:
    """The schema as values; one that cannot be read stays as the child sent it."""
    if not isinstance(tool.input_schema, Raw):
        return {"type": "object"}
    try:
        decoded: object = msgspec.json.decode(tool.input_schema)
    except (msgspec.DecodeError, RecursionError):
        return tool.input_schema
    return decoded


def _no_tools(tools: Sequence[ToolView], plan: _Plan, instructions: str) -> bytes:
    tail: dict[str, object] = {"detail": plan.levels[0].detail}
    if tools:
        tail["more"] = f"No tool matches this query. Without query: all {len(tools)}."
    else:
        tail["more"] = "This child offers no tools."
        text = _clip(instructions, int(plan.budget * INSTRUCTIONS_SHARE))
        if text:
            tail["instructions"] = text
    return _assemble([], tail)


def _assemble(entries: list[bytes], tail: dict[str, object]) -> bytes:
    return b'{"tools":[' + b",".join(entries) + b"]," + msgspec.json.encode(tail)[1:]


def _clip(text: str, tokens: int) -> str:
    """As much of a text as the tokens pay for, without blank lines; cut at a line or sentence where one is near."""
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
    """Where a cursor points."""

    query: str = ""
    detail: str = ""
    start: int = 0
    stamp: str = ""


def _cursor(plan: _Plan, level: Level, start: int) -> str:
    """The detail when it was asked for, the next tool's place, a stamp of the list, and the query."""
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
    """Changes when the list does, so that a page never skips or repeats a tool unnoticed."""
    return f"{crc32(chr(0).join(tool.name for tool in tools).encode('utf-8', 'surrogatepass')):08x}"


def _bad_cursor(child: str, reason: str) -> Failure:
    return failure("cursor_invalid", f"The cursor for child {child!r} is not valid. {reason}", child=child)
