"""The words of the commands that take sentences: `ask`, `wrap`, `unwrap`, `wrapper`.

Owns how their arguments are read. It does not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from switchboard_mcp.cli.usage import Parser


class Row(NamedTuple):
    """What `usage` makes a command of."""

    usage: str
    summary: str
    more: str
    add: Callable[[Parser], None]


def _ask(parser: Parser) -> None:
    parser.add_argument("words", metavar="SENTENCE", nargs="+", help="what you want done")
    parser.flag(
        "--suite", metavar="NAME", default="", help="with this suite (default: the one that fits best)"
    )
    parser.flag("--context", metavar="TEXT", default="", help="what else it takes: names, paths, texts")
    parser.flag("--yes", action="store_true", help="run the plan without asking")
    parser.flag("--dry-run", action="store_true", help="show the plan, run nothing")
    parser.flag(
        "--output", metavar="DIR", default="", help="save images, audio and resources into this folder"
    )


def _wrap(parser: Parser) -> None:
    parser.add_argument("child", metavar="CHILD", help="name of a child")
    parser.flag(
        "--command",
        metavar="PROGRAM",
        default="",
        help="what the child shall run (default: this program, by its path)",
    )


def _child(parser: Parser) -> None:
    parser.add_argument("child", metavar="CHILD", help="name of a child")


ASK = {
    "ask": Row(
        "ask SENTENCE [OPTIONS]",
        "Have a model find and call the subtools for a sentence. Shows the plan and asks before anything is run. The\n"
        "key is taken from ANTHROPIC_API_KEY or CLAUDE_API_KEY; `ask` in the config says the rest.",
        "examples:\n"
        '  switchboard ask "what do you know about Ada?"\n'
        '  switchboard ask --suite files "how large is README.md?" --yes\n'
        '  switchboard ask "delete the entity Bob" --dry-run --json',
        _ask,
    ),
    "wrap": Row(
        "wrap CHILD [OPTIONS]",
        "Let a child be asked in sentences: its suite has one subtool, natural_language, behind which a model finds\n"
        "and calls the child's own. What the model is told of the child stands in CLAUDE.md beside its file; edit it.",
        "example:\n  switchboard wrap memory\n"
        "  switchboard call memory natural_language query='remember that Ada likes tea'",
        _wrap,
    ),
    "unwrap": Row(
        "unwrap CHILD [OPTIONS]",
        "Put a wrapped child back as it was, byte for byte. A CLAUDE.md that you changed stays.",
        "",
        _child,
    ),
    "wrapper": Row(
        "wrapper CHILD [OPTIONS]",
        "Serve a wrapped child over stdio. This is what its file runs; there is no need to run it by hand.",
        "",
        _child,
    ),
}
