"""The words of `switchboard mail`: its commands, their flags, their help, and where each one is.

Owns how their arguments are read. It does not know what they do.
"""

from __future__ import annotations

from switchboard_mcp.cli.parser import Command, choice, flag, option, positional, repeatable

ACTIONS = ("delegate_task", "request_review", "submit_result", "status_update", "execute")
PRIORITIES = ("low", "normal", "high", "urgent")
OUTCOMES = ("done", "failed", "rejected")
PLACES = ("inbox", "claimed", "shipped", "archive", "deadletter")
HOSTS = ("claude-code", "codex", "gemini")
# Options that take a value may stand before the command's word: what follows them is no command.
VALUED = frozenset({"--as"})

OVERVIEW = """\
Letters between agents, as files in .switchboard/: the same ones that hosts send with the mail tools.

usage: switchboard mail COMMAND [OPTIONS]

  send TO [TEXT]        write to an agent, a role or a team; answered when it is stored
  inbox                 what waits for you; consumes nothing
  read [ID]             one message in full; consumes nothing
  claim                 take the next messages, to work on them
  ack [ID] [OUTCOME]    settle a message: done, failed or rejected; --result answers its sender
  wait                  wait until there is mail
  receipts [ID …]       what became of messages that you sent
  search WORDS          find messages that you received
  agents                who there is; `agents add NAME`, `agents role NAME ROLE`
  teams                 which teams there are; `teams create TEAM MEMBER …`
  workflow              workflows under way; `workflow start|complete|skip|stop`
  dead                  messages that were set aside, and why; `dead requeue ID` puts one back
  verify                prove that every accepted message is in exactly one place
  repair                mend what a crash left
  prune --older 30d     take away what was settled so long ago, with its receipts; --dry-run
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

AS = option("--as", "NAME", "which agent you are", dest="agent")
ID = "id of a message, or enough of its last characters"
LIMIT = option("--limit", "N", "how many to show (default: 20)", 20)

MAIL = {
    "mail send": Command(
        "mail send TO [TEXT | - | --file FILE] [OPTIONS]",
        "Send a message. Answered when it is stored: from then on nothing loses it.",
        run="mail.write:run_send",
        arguments=[
            positional("to", "an agent, a role that one agent has, or a team"),
            positional("text", "what to say; - reads stdin", nargs="?"),
            AS,
            option("--file", "FILE", "say what stands in this file"),
            choice("--action", ACTIONS, "what it is (default: status_update)", "status_update"),
            option("--subject", "LINE", "a line that may be shown before it is read"),
            option("--reply-to", "ID", "the message that this answers"),
            choice("--priority", PRIORITIES, "how urgent it is", "normal"),
            option("--ack-by", "TIME", "ISO 8601: when you expect it to be settled"),
            option("--key", "KEY", "the same key to the same recipient is sent once"),
            repeatable("--meta", "KEY=VALUE", "a further key; JSON or text"),
            flag("--team", "TO is a team, though an agent is called so too"),
            option("--role", "ROLE", "to a team: only members in this role"),
        ],
        epilog="examples:\n"
        '  switchboard mail send coder "Please write the parser" --action delegate_task --as lead\n'
        "  git diff | switchboard mail send reviewer - --action request_review\n"
        '  switchboard mail send builders "We freeze at noon"',
    ),
    "mail inbox": Command(
        "mail inbox [OPTIONS]",
        "Show what waits for you. Consumes nothing.",
        run="mail.read:run_inbox",
        arguments=[
            AS,
            LIMIT,
            option("--after", "ORDER", "only messages beyond this `order`, for paging", 0),
        ],
    ),
    "mail read": Command(
        "mail read [ID] [OPTIONS]",
        "Show one message of yours in full, wherever it is now. Consumes nothing.",
        run="mail.read:run_read",
        arguments=[
            positional("id", f"{ID} (default: the next that waits)", nargs="?", default=""),
            AS,
        ],
    ),
    "mail claim": Command(
        "mail claim [ID …] [OPTIONS]",
        "Take the next messages: they are yours until you `ack` them, or until the lease is over.",
        run="mail.write:run_claim",
        arguments=[
            positional("ids", "only these messages (default: the next)", metavar="ID", nargs="*"),
            AS,
            option("--max", "N", "how many to take (default: 1)", 1),
            option("--lease", "SECONDS", "how long they are yours (default: 300)", 300.0),
        ],
    ),
    "mail ack": Command(
        "mail ack [ID] [done|failed|rejected] [OPTIONS]",
        "Settle a message: done and failed put it into the archive, rejected among the dead letters. The sender gets\n"
        "a receipt.",
        run="mail.write:run_ack",
        arguments=[
            positional("id", f"{ID} (default: the one you have claimed)", nargs="?", default=""),
            positional("outcome", "done, failed, rejected (default: done)", nargs="?", default=""),
            AS,
            option("--result", "TEXT", "goes back to the sender as submit_result; - is stdin", None),
            option("--summary", "LINE", "a sentence for the receipt"),
            option("--fence", "N", "as `claim` told it: settle only that claim", 0),
        ],
        epilog='example:\n  switchboard mail ack 3f2a --result "The parser is in src/parser.py"',
    ),
    "mail wait": Command(
        "mail wait [OPTIONS]",
        "Wait until there is mail, then show it. Exit code 1 where the time is over.",
        run="mail.wait:run",
        arguments=[
            AS,
            option("--timeout", "SECONDS", "give up then (default: never)", 0.0),
            flag("--new", "only for what comes from now on"),
            choice("--host", ("claude-code",), "as a hook that wakes this host (see the guide)"),
        ],
    ),
    "mail receipts": Command(
        "mail receipts [ID …] [OPTIONS]",
        "Show what became of messages that you sent.",
        run="mail.read:run_receipts",
        arguments=[
            positional(
                "ids", "of these messages only; enough of their last characters", metavar="ID", nargs="*"
            ),
            AS,
            LIMIT,
            option("--wait", "SECONDS", "wait until the named ones have ended", 0.0),
        ],
    ),
    "mail search": Command(
        "mail search [WORDS …] [OPTIONS]",
        "Find messages that you received.",
        run="mail.read:run_search",
        arguments=[
            positional("words", "what it is about", nargs="*"),
            AS,
            option("--from", "NAME", "only from this agent", dest="sender"),
            choice("--action", ACTIONS, "only of this kind"),
            choice("--place", PLACES, "only there (default: all but dead letters)"),
            LIMIT,
        ],
    ),
    "mail agents": Command(
        "mail agents [add NAME | role NAME ROLE] [OPTIONS]",
        "Show who there is, who is here, what is unread, and whose mail waits with nobody woken; or add an agent, or\n"
        "give one a role.",
        run="mail.people:run_agents",
        arguments=[
            positional("words", "what to do", metavar="add NAME | role NAME ROLE", nargs="*"),
            AS,
            option("--purpose", "LINE", "with add: what it is for"),
        ],
        epilog="examples:\n"
        '  switchboard mail agents add ada --purpose "the one with the plan"\n'
        "  switchboard mail agents role ada lead --as ada",
    ),
    "mail teams": Command(
        "mail teams [create TEAM MEMBER …] [OPTIONS]",
        "Show the teams, or make one. With --role it is one agent that plays several roles.",
        run="mail.people:run_teams",
        arguments=[
            positional("words", "what to do", metavar="create TEAM MEMBER …", nargs="*"),
            AS,
            repeatable(
                "--role", "ROLE", "with create, for a team of one: a role that it plays", dest="roles"
            ),
        ],
    ),
    "mail workflow": Command(
        "mail workflow [start NAME | complete [PHASE] | skip [PHASE] | stop] [OPTIONS]",
        "Show the workflows that can be started and those under way, or move one on.",
        run="mail.workflow:run",
        arguments=[
            positional(
                "words",
                "what to do (default: show)",
                metavar="start NAME | complete [PHASE] | skip [PHASE] | stop",
                nargs="*",
            ),
            AS,
            option("--workflow", "ID", "which one (default: the one you are in)"),
            repeatable("--part", "PART=AGENT", "start: who does what", dest="parts"),
            option("--subject", "LINE", "start: what it is about"),
            repeatable("--artifact", "FILE", "complete: a file made", dest="artifacts"),
            option("--next", "PHASE", "complete, skip: where to, if there is a choice"),
            option("--reason", "LINE", "skip, stop: why; is recorded"),
            option("--note", "LINE", "complete: a sentence for the record"),
        ],
        epilog="examples:\n"
        "  switchboard mail workflow start review --part author=coder --part reviewer=bob --as lead\n"
        "  switchboard mail workflow complete submit --artifact src/parser.py --as coder\n"
        '  switchboard mail workflow stop --reason "not needed any more" --as lead',
    ),
    "mail dead": Command(
        "mail dead [requeue ID …] [OPTIONS]",
        "Show what was set aside: rejected, never settled, or no message at all; or put one back into its inbox, as\n"
        "new. Everybody's, unless you say which agent you are.",
        run="mail.dead:run",
        arguments=[
            positional("words", "what to do", metavar="requeue ID …", nargs="*"),
            AS,
        ],
    ),
    "mail verify": Command(
        "mail verify [OPTIONS]",
        "Look at every file and prove that each accepted message is in exactly one place, whole. Exit code 1 where\n"
        "one is not.",
        run="mail.check:run_verify",
    ),
    "mail repair": Command(
        "mail repair [OPTIONS]",
        "Mend what a crash left behind, and say what was done.",
        run="mail.check:run_repair",
    ),
    "mail prune": Command(
        "mail prune --older AGE [--dry-run] [OPTIONS]",
        "Take away messages that were settled so long ago, with their receipts, keys and attachments, of all agents.\n"
        "What waits, is claimed or is a dead letter stays.",
        run="mail.check:run_prune",
        arguments=[
            option("--older", "AGE", "how long ago: 30d, 12h", required=True),
            flag("--dry-run", "only say how much it would be"),
        ],
    ),
    "mail hook": Command(
        "mail hook [--host HOST] [OPTIONS]",
        "For hosts that run a command at a turn's end or before a prompt: says what is unread, in its own form.\n"
        "Silent where nothing is. Says who wrote and what kind of message it is, never what stands in it.",
        run="mail.hook:run",
        arguments=[
            AS,
            choice("--host", HOSTS, "whose form to speak (default: what stdin looks like)"),
        ],
        epilog="The agent is --as, SWITCHBOARD_AGENT, or the one that registered from this host's own session.",
    ),
}
