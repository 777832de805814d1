"""The words of `switchboard bus`: its flags and its help. It does not know what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from switchboard_mcp.cli.usage import Parser

ACTIONS = ("status", "tail", "relay", "replay")
STREAMS = ("in", "dead", "changes", "events")
USAGE = "bus status|tail|relay|replay [ID …] [OPTIONS]"
SUMMARY = (
    "Mail between machines, over Redis Streams (bus.url in the config, or SWITCHBOARD_BUS_URL).\n"
    "`status` tells how the relay here is and what Redis holds; exit code 1 where mail does not flow. `relay` carries\n"
    "mail until it is stopped, for a workspace that no server serves. `tail` reads a stream. `replay` sends dead\n"
    "letters again: those with these ids, or all; with --node it takes back what was shipped to a machine that will\n"
    "never answer, so that it goes to wherever its reader lives now."
)
MORE = (
    "examples:\n"
    "  switchboard bus status\n"
    "  switchboard bus tail --stream dead --last 5\n"
    "  switchboard bus tail --stream events --follow --json\n"
    "  switchboard bus replay 1794748984128-0"
)


def add(parser: Parser) -> None:
    """What may be said."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help="status, tail, relay or replay")
    parser.add_argument("ids", metavar="ID", nargs="*", help="replay: ids of dead letters (default: all)")
    parser.flag("--stream", choices=STREAMS, default="in", help="tail: which (default: what comes in here)")
    parser.flag("--last", metavar="N", type=int, default=20, help="tail: how many (default: 20)")
    parser.flag("--follow", action="store_true", help="tail: go on with what comes")
    parser.flag(
        "--node", metavar="NODE", default="", help="replay: take back what was shipped to this machine"
    )
