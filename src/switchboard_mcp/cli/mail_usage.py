"""The words of `switchboard mail`: its commands, their flags, their help, and where each one is.

Owns how their arguments are read. It does not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from switchboard_mcp.cli.usage import Parser

ACTIONS = ("delegate_task", "request_review", "submit_result", "status_update", "execute")
PRIORITIES = ("low", "normal", "high", "urgent")
OUTCOMES = ("done", "failed", "rejected")
PLACES = ("inbox", "claimed", "shipped", "archive", "deadletter")
HOSTS = ("claude-code", "codex", "gemini")
# Options that take a value may stand before the command's word: what follows them is no command.
VALUED = frozenset({"--as"})


class Row(NamedTuple):
    """One command, as `usage.Command` has it."""

    usage: str
    summary: str
    more: str
    add: Callable[[Parser], None]


OVERVIEW = """\
Letters between agents, as files in .switchboard/: the same ones that hosts send with the mail tools.

usage: switchboard mail COMMAND [OPTIONS]

  send TO [TEXT]        write to an agent, a role or a team; answered when it is stored
  inbox                 what waits for you; consumes nothing
  read ID               one message in full; consumes nothing
  claim                 take the next messages, to work on them
  ack ID [OUTCOME]      settle a message: done, failed or rejected; --result answers its sender
  wait                  wait until there is mail
  receipts [ID …]       what became of messages that you sent
  search WORDS          find messages that you received
  agents                who there is; `agents add NAME`, `agents role NAME ROLE`
  teams                 which teams there are; `teams create TEAM MEMBER …`
  workflow              workflows under way; `workflow start|complete|skip|stop`
  verify                prove that every accepted message is in exactly one place
  repair                mend what a crash left
  hook                  tell a host at its turn's end what is unread (see docs/messaging.md)

  --as NAME             which agent you are (default: SWITCHBOARD_AGENT)
  --json                answer for programs
  --workspace DIR       folder with .switchboard (default: SWITCHBOARD_WORKSPACE, else here or above)

example:
  $ switchboard mail agents add ada
  $ export SWITCHBOARD_AGENT=ada
  $ switchboard mail send coder "Please write the parser" --action delegate_task
  $ switchboard mail receipts
"""


def _as(parser: Parser) -> None:
    parser.flag("--as", dest="agent", metavar="NAME", default="", help="which agent you are")


def _send(parser: Parser) -> None:
    parser.add_argument("to", metavar="TO", help="an agent, a role that one agent has, or with --team a team")
    parser.add_argument("text", metavar="TEXT", nargs="?", default=None, help="what to say; - reads stdin")
    _as(parser)
    parser.flag("--file", metavar="FILE", default="", help="say what stands in this file")
    parser.flag(
        "--action", choices=ACTIONS, default="status_update", help="what it is (default: status_update)"
    )
    parser.flag("--subject", metavar="LINE", default="", help="a line that may be shown before it is read")
    parser.flag("--reply-to", metavar="ID", default="", help="the message that this answers")
    parser.flag("--priority", choices=PRIORITIES, default="normal", help="how urgent it is")
    parser.flag("--ack-by", metavar="TIME", default="", help="ISO 8601: when you expect it to be settled")
    parser.flag("--key", metavar="KEY", default="", help="the same key to the same recipient is sent once")
    parser.flag(
        "--meta", metavar="KEY=VALUE", action="append", default=[], help="a further key; JSON or text"
    )
    parser.flag("--team", action="store_true", help="TO is a team: everybody in it gets the message")
    parser.flag("--role", metavar="ROLE", default="", help="with --team: only members in this role")


def _inbox(parser: Parser) -> None:
    _as(parser)
    parser.flag("--limit", metavar="N", type=int, default=20, help="how many to show (default: 20)")
    parser.flag(
        "--after", metavar="ORDER", type=int, default=0, help="only messages beyond this `order`, for paging"
    )


def _read(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="id of a message, or enough of its end")
    _as(parser)


def _claim(parser: Parser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help="only these messages (default: the next)")
    _as(parser)
    parser.flag("--max", metavar="N", type=int, default=1, help="how many to take (default: 1)")
    parser.flag(
        "--lease", metavar="SECONDS", type=float, default=300.0, help="how long they are yours (default: 300)"
    )


def _ack(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="id of a message, or enough of its end")
    parser.add_argument(
        "outcome",
        metavar="OUTCOME",
        nargs="?",
        choices=OUTCOMES,
        default="done",
        help="done, failed, rejected",
    )
    _as(parser)
    parser.flag(
        "--result", metavar="TEXT", default=None, help="goes back to the sender as submit_result; - is stdin"
    )
    parser.flag("--summary", metavar="LINE", default="", help="a sentence for the receipt")
    parser.flag(
        "--fence", metavar="N", type=int, default=0, help="as `claim` told it: settle only that claim"
    )


def _wait(parser: Parser) -> None:
    _as(parser)
    parser.flag("--timeout", metavar="SECONDS", type=float, default=0.0, help="give up then (default: never)")
    parser.flag("--new", action="store_true", help="only for what comes from now on")
    parser.flag(
        "--host", choices=("claude-code",), default="", help="as a hook that wakes this host (see the guide)"
    )


def _receipts(parser: Parser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help="of these messages only")
    _as(parser)
    parser.flag("--limit", metavar="N", type=int, default=20, help="how many to show (default: 20)")
    parser.flag(
        "--wait", metavar="SECONDS", type=float, default=0.0, help="wait until the named ones have ended"
    )


def _search(parser: Parser) -> None:
    parser.add_argument("words", metavar="WORDS", nargs="*", help="what it is about")
    _as(parser)
    parser.flag("--from", dest="sender", metavar="NAME", default="", help="only from this agent")
    parser.flag("--action", choices=ACTIONS, default="", help="only of this kind")
    parser.flag("--place", choices=PLACES, default="", help="only there (default: all but dead letters)")
    parser.flag("--limit", metavar="N", type=int, default=20, help="how many to show (default: 20)")


def _agents(parser: Parser) -> None:
    parser.add_argument("words", metavar="add NAME | role NAME ROLE", nargs="*", help="what to do")
    _as(parser)
    parser.flag("--purpose", metavar="LINE", default="", help="with add: what it is for")


def _teams(parser: Parser) -> None:
    parser.add_argument("words", metavar="create TEAM MEMBER …", nargs="*", help="what to do")
    _as(parser)
    parser.flag(
        "--role",
        dest="roles",
        metavar="ROLE",
        action="append",
        default=[],
        help="with create, for a team of one: a role that it plays",
    )


def _workflow(parser: Parser) -> None:
    words = "start NAME | complete PHASE | skip PHASE | stop"
    parser.add_argument("words", metavar=words, nargs="*", help="what to do (default: show)")
    _as(parser)
    parser.flag("--workflow", metavar="ID", default="", help="which one (default: the one you are in)")
    parser.flag(
        "--part", dest="parts", metavar="PART=AGENT", action="append", default=[], help="start: who does what"
    )
    parser.flag("--subject", metavar="LINE", default="", help="start: what it is about")
    parser.flag(
        "--artifact",
        dest="artifacts",
        metavar="FILE",
        action="append",
        default=[],
        help="complete: a file made",
    )
    parser.flag("--next", metavar="PHASE", default="", help="complete, skip: where to, if there is a choice")
    parser.flag("--reason", metavar="LINE", default="", help="skip, stop: why; is recorded")
    parser.flag("--note", metavar="LINE", default="", help="complete: a sentence for the record")


def _hook(parser: Parser) -> None:
    _as(parser)
    parser.flag(
        "--host", choices=HOSTS, default="", help="whose form to speak (default: what stdin looks like)"
    )


def _nothing(parser: Parser) -> None:
    return None


RUNS = {
    "mail send": "mail_write:run_send",
    "mail inbox": "mail_read:run_inbox",
    "mail read": "mail_read:run_read",
    "mail claim": "mail_write:run_claim",
    "mail ack": "mail_write:run_ack",
    "mail wait": "mail_wait:run",
    "mail receipts": "mail_read:run_receipts",
    "mail search": "mail_read:run_search",
    "mail agents": "mail_people:run_agents",
    "mail teams": "mail_people:run_teams",
    "mail workflow": "mail_workflow:run",
    "mail verify": "mail_check:run_verify",
    "mail repair": "mail_check:run_repair",
    "mail hook": "mail_hook:run",
}

MAIL: dict[str, Row] = {
    "mail send": Row(
        "mail send TO [TEXT | - | --file FILE] [OPTIONS]",
        "Send a message. Answered when it is stored: from then on nothing loses it.",
        "examples:\n"
        '  switchboard mail send coder "Please write the parser" --action delegate_task --as lead\n'
        "  git diff | switchboard mail send reviewer - --action request_review\n"
        '  switchboard mail send builders "We freeze at noon" --team',
        _send,
    ),
    "mail inbox": Row("mail inbox [OPTIONS]", "Show what waits for you. Consumes nothing.", "", _inbox),
    "mail read": Row(
        "mail read ID [OPTIONS]",
        "Show one message of yours in full, wherever it is now. Consumes nothing.",
        "",
        _read,
    ),
    "mail claim": Row(
        "mail claim [ID …] [OPTIONS]",
        "Take the next messages: they are yours until you `ack` them, or until the lease is over.",
        "",
        _claim,
    ),
    "mail ack": Row(
        "mail ack ID [done|failed|rejected] [OPTIONS]",
        "Settle a message: done and failed put it into the archive, rejected among the dead letters. The sender gets\n"
        "a receipt.",
        'example:\n  switchboard mail ack 3f2a --result "The parser is in src/parser.py"',
        _ack,
    ),
    "mail wait": Row(
        "mail wait [OPTIONS]",
        "Wait until there is mail, then show it. Exit code 1 where the time is over.",
        "",
        _wait,
    ),
    "mail receipts": Row(
        "mail receipts [ID …] [OPTIONS]",
        "Show what became of messages that you sent.",
        "",
        _receipts,
    ),
    "mail search": Row("mail search [WORDS …] [OPTIONS]", "Find messages that you received.", "", _search),
    "mail agents": Row(
        "mail agents [add NAME | role NAME ROLE] [OPTIONS]",
        "Show who there is, who is here, what is unread, and whose mail waits with nobody woken; or add an agent, or\n"
        "give one a role.",
        "examples:\n"
        '  switchboard mail agents add ada --purpose "the one with the plan"\n'
        "  switchboard mail agents role ada lead --as ada",
        _agents,
    ),
    "mail teams": Row(
        "mail teams [create TEAM MEMBER …] [OPTIONS]",
        "Show the teams, or make one. With --role it is one agent that plays several roles.",
        "",
        _teams,
    ),
    "mail workflow": Row(
        "mail workflow [start NAME | complete PHASE | skip PHASE | stop] [OPTIONS]",
        "Show the workflows that can be started and those under way, or move one on.",
        "examples:\n"
        "  switchboard mail workflow start review --part author=coder --part reviewer=bob --as lead\n"
        "  switchboard mail workflow complete submit --artifact src/parser.py --as coder\n"
        '  switchboard mail workflow stop --reason "not needed any more" --as lead',
        _workflow,
    ),
    "mail verify": Row(
        "mail verify [OPTIONS]",
        "Look at every file and prove that each accepted message is in exactly one place, whole. Exit code 1 where\n"
        "one is not.",
        "",
        _nothing,
    ),
    "mail repair": Row(
        "mail repair [OPTIONS]",
        "Mend what a crash left behind, and say what was done.",
        "",
        _nothing,
    ),
    "mail hook": Row(
        "mail hook [--host HOST] [OPTIONS]",
        "For hosts that run a command at a turn's end or before a prompt: says what is unread, in its own form.\n"
        "Silent where nothing is. Says who wrote and what kind of message it is, never what stands in it.",
        "The agent is --as, SWITCHBOARD_AGENT, or the one that registered from this host's own session.",
        _hook,
    ),
}
