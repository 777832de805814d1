"""The traits of client programs: which copy of a result their model sees, their limits, and how they treat tool lists.

One table, keyed by the name and the version in `clientInfo`. Each row has its source and the day on which that was
checked, since hosts change: of a newer major version than the row is for, only the name counts as known. A program that
has no row may be anything, even a script that reads results itself.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Literal

from msgspec import Struct

Shows = Literal["text", "structured", "both", ""]


class HostTraits(Struct, frozen=True, kw_only=True, rename="camel"):
    """One host, in versions from `since` up to, and without, `until`. An empty or zero trait is not known."""

    names: tuple[str, ...]  # of `clientInfo`, in lower case; `*` at the end matches anything
    title: str
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    shows: Shows = ""  # the copy of a result that its model sees if there are text and structured content
    cut_chars: int = 0  # the host itself cuts a longer result, or moves it to a file
    result_tokens: int = 0  # the most of `results.maxTokens`: a longer text would be cut by the host
    head_chars: int = 0  # the most of a shortened text that the host does not cut
    objects_only: bool = (
        False  # it refuses a result without structured content whose text is JSON but no object
    )
    defers_tools: bool = False  # its model searches for tools, and sees only their names before
    defers_from: int = 0  # the number of tools from which it does so
    hides_names: bool = False  # before a search its model sees no names, only the instructions of a server
    loads_marked: bool = False  # it loads tools with `anthropic/alwaysLoad` in `_meta` without a search
    code_mode: bool = False  # its model may call tools from its own programs
    ignores_list_changed: bool = False  # it lists tools once
    name_chars: int = 0  # the longest name of a tool, with the prefix it adds
    name_prefix: str = ""  # what it puts before the name of a tool of a server named `switchboard`
    max_tools: int = 0  # of all servers together
    description_chars: int = 0  # longer descriptions of tools are cut
    sources: str = ""
    checked: str = ""  # the day, in ISO form

    def cuts(self, text: str) -> bool:
        """Return whether the host would not show its model this text whole."""
        return 0 < self.cut_chars < len(text)

    def is_for(self, name: str, version: tuple[int, ...]) -> bool:
        """Return whether the row describes a client of this name and version."""
        named = any(name.startswith(own[:-1]) if own.endswith("*") else name == own for own in self.names)
        return named and (not version or (version >= self.since and (not self.until or version < self.until)))


# The first row that fits counts. "measured": seen in the request that this version sends to its model.
HOSTS = (
    HostTraits(
        names=("claude-code",),
        title="Claude Code",
        since=(2, 0, 21),
        until=(3,),
        shows="structured",
        cut_chars=50_000,
        defers_tools=True,
        loads_marked=True,
        name_chars=64,
        name_prefix="mcp__switchboard__",
        description_chars=2_048,
        sources="measured with 2.1.197 and 2.1.325, with and without tool search; longer results become "
        "files; anthropics/claude-code#9962, #55677, "
        "#79944; colbymchenry/codegraph#1696: deferred tools called in 2 of 6 sessions, loaded ones in 6 of 6",
        checked="2026-11-16",
    ),
    HostTraits(
        names=("codex-mcp-client", "codex*"),
        title="Codex",
        until=(1,),
        shows="structured",
        cut_chars=11_900,
        result_tokens=2_500,
        head_chars=8_000,
        defers_tools=True,
        hides_names=True,
        code_mode=True,
        ignores_list_changed=True,
        name_chars=128,
        name_prefix="mcp__switchboard__",
        sources="measured with 0.166.0: cuts text in the middle at 11,900 characters; searches for tools with each of "
        "its own models, not with others; newer models call tools from programs; openai/codex#38287, #6544, #7906",
        checked="2026-11-16",
    ),
    HostTraits(
        names=("gemini-cli-mcp-client", "gemini-cli*"),
        title="Gemini CLI",
        until=(1,),
        shows="text",
        cut_chars=40_000,
        objects_only=True,
        name_chars=63,
        name_prefix="mcp_switchboard_",
        sources="measured with 0.61.0: cuts text in the middle at 40,000 characters; "
        "transformMcpContentToParts and fixStructuredContent in google-gemini/gemini-cli",
        checked="2026-11-16",
    ),
    HostTraits(
        names=("opencode",),
        title="opencode",
        since=(1, 18),
        until=(2,),
        shows="text",
        cut_chars=51_200,
        name_prefix="switchboard_",
        sources="measured with 1.18.33: longer results become files; "
        "sst/opencode#34505 (29 June 2026), which reversed #32074",
        checked="2026-11-16",
    ),
    HostTraits(
        names=("copilot-cli", "github-copilot-developer"),
        title="Copilot CLI",
        since=(1, 0, 80),
        until=(2,),
        shows="both",
        cut_chars=62_000,
        defers_tools=True,
        defers_from=30,
        name_chars=64,
        name_prefix="switchboard-",
        sources="measured with 1.0.102: results of 62 KB become files, those of 19 KB do not; "
        "github/copilot-cli#4515 (17 August 2026); before it structured only: #3258; "
        "colbymchenry/codegraph#1697: from about 30 tools",
        checked="2026-11-16",
    ),
    HostTraits(
        names=("visual studio code*",),
        title="VS Code",
        since=(1, 100),
        until=(2,),
        shows="structured",
        name_chars=64,
        name_prefix="mcp_switchboard_",
        max_tools=128,
        sources="mcpLanguageModelToolContribution.ts; microsoft/vscode#290063; vendor's documentation: 128 tools; with "
        "some models it searches or groups tools (vscode-docs#9695), which is not counted on",
        checked="2026-11-15",
    ),
    HostTraits(
        names=("zed",),
        title="Zed",
        until=(2,),
        shows="text",
        name_chars=64,
        sources="context_server_registry.rs",
        checked="2026-11-15",
    ),
    HostTraits(
        names=("goose*",),
        title="Goose",
        cut_chars=200_000,
        code_mode=True,
        sources="its code_execution extension; large_response_handler.rs; block/goose#10125: structured content is "
        "dropped in some versions",
        checked="2026-11-15",
    ),
    # Hosts of models of which it is not known which copy they show.
    HostTraits(
        names=("cursor*",),
        title="Cursor",
        name_chars=60,
        sources="vendor's blog, January 2026: long results become files",
        checked="2026-11-15",
    ),
    HostTraits(
        names=("claude-ai",),
        title="Claude Desktop",
        ignores_list_changed=True,
        sources="anthropics/claude-ai-mcp#45, #1044: lists are kept per connector",
        checked="2026-11-16",
    ),
    HostTraits(
        names=("cline",), title="Cline", name_chars=64, sources="its source code", checked="2026-11-15"
    ),
    HostTraits(
        names=("windsurf*",),
        title="Windsurf",
        max_tools=100,
        sources="vendor's documentation",
        checked="2026-11-16",
    ),
    HostTraits(names=("kimi*",), title="Kimi", sources="MoonshotAI/kimi-code#3234", checked="2026-11-15"),
)
UNKNOWN = HostTraits(names=(), title="")
MAX_KNOWN = 256
MAX_DIGITS = 6
_known: dict[tuple[str, str], HostTraits] = {}


def traits_of(name: str, version: str = "") -> HostTraits:
    """Return what is known of a client by the name and version it sends; `UNKNOWN` if its name is in no row.

    A version that no row is for, or none, leaves only the title: hosts have changed back and forth.

    >>> traits_of("claude-code", "2.1.325").shows, traits_of("claude-code", "9.0").shows, traits_of("mcp") is UNKNOWN
    ('structured', '', True)
    """
    key = (name, version)
    traits = _known.get(key)
    if traits is None:
        traits = _find(name.lower(), version)
        if len(_known) >= MAX_KNOWN:  # a client may send any name
            _known.clear()
        _known[key] = traits
    return traits


def _find(name: str, version: str) -> HostTraits:
    numbers = parse_version(version)
    rows = [row for row in HOSTS if row.is_for(name, ())]
    for row in rows:
        if numbers and row.is_for(name, numbers):
            return row
    if not rows:
        return UNKNOWN
    row = rows[0]
    # Limits are kept: being careful with them costs little.
    return HostTraits(
        names=row.names,
        title=row.title,
        cut_chars=row.cut_chars,
        result_tokens=row.result_tokens,
        objects_only=row.objects_only,
        head_chars=row.head_chars,
        name_chars=row.name_chars,
        name_prefix=row.name_prefix,
        max_tools=row.max_tools,
        description_chars=row.description_chars,
    )


def parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version up to a suffix; empty if it begins with none.

    >>> parse_version("v2.1.3-beta.4"), parse_version("dev")
    ((2, 1, 3), ())
    """
    numbers = []
    for part in version[:64].removeprefix("v").split("."):
        digits = "".join(takewhile("0123456789".__contains__, part[:MAX_DIGITS]))
        if not digits:
            break
        numbers.append(int(digits))
        if len(digits) < len(part):
            break
    return tuple(numbers)
