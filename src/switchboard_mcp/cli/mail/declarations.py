"""The words of `switchboard mail`: its commands, their flags, their help, and where each one is.

Owns how their arguments are read. It does not know what they do.
"""

from __future__ import annotations

from switchboard_mcp.cli.parser import Command, choice, many, switch, value, word

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

AS = value("--as", "NAME", "which agent you are", dest="agent")
ID = "id of a message, or enough of its last characters"
LIMIT = value("--limit", "N", "how many to show (default: 20)", 20)

MAIL = {
    "mail send": Command(
        "mail send TO [TEXT | - | --file FILE] [OPTIONS]",
        "Send a message. Answered when it is stored: from then on nothing loses it.",
        run="mail.write:run_send",
        takes=[
            word("to", "an agent, a role that one agent has, or a team"),
            word("text", "what to say; - reads stdin", nargs="?"),
            AS,
            value("--file", "FILE", "say what stands in this file"),
            choice("--action", ACTIONS, "what it is (default: status_update)", "status_update"),
            value("--subject", "LINE", "a line that may be shown before it is read"),
            value("--reply-to", "ID", "the message that this answers"),
            choice("--priority", PRIORITIES, "how urgent it is", "normal"),
            value("--ack-by", "TIME", "ISO 8601: when you expect it to be settled"),
            value("--key", "KEY", "the same key to the same recipient is sent once"),
            many("--meta", "KEY=VALUE", "a further key; JSON or text"),
            switch("--team", "TO is a team, though an agent is called so too"),
            value("--role", "ROLE", "to a team: only members in this role"),
        ],
        more="examples:\n"
        '  switchboard mail send coder "Please write the parser" --action delegate_task --as lead\n'
        "  git diff | switchboard mail send reviewer - --action request_review\n"
        '  switchboard mail send builders "We freeze at noon"',
    ),
    "mail inbox": Command(
        "mail inbox [OPTIONS]",
        "Show what waits for you. Consumes nothing.",
        run="mail.read:run_inbox",
        takes=[
            AS,
            LIMIT,
            value("--after", "ORDER", "only messages beyond this `order`, for paging", 0),
        ],
    ),
    "mail read": Command(
        "mail read [ID] [OPTIONS]",
        "Show one message of yours in full, wherever it is now. Consumes nothing.",
        run="mail.read:run_read",
        takes=[
            word("id", f"{ID} (default: the next that waits)", nargs="?", default=""),
            AS,
        ],
    ),
    "mail claim": Command(
        "mail claim [ID …] [OPTIONS]",
        "Take the next messages: they are yours until you `ack` them, or until the lease is over.",
        run="mail.write:run_claim",
        takes=[
            word("ids", "only these messages (default: the next)", metavar="ID", nargs="*"),
            AS,
            value("--max", "N", "how many to take (default: 1)", 1),
            value("--lease", "SECONDS", "how long they are yours (default: 300)", 300.0),
        ],
    ),
    "mail ack": Command(
        "mail ack [ID] [done|failed|rejected] [OPTIONS]",
        "Settle a message: done and failed put it into the archive, rejected among the dead letters. The sender gets\n"
        "a receipt.",
        run="mail.write:run_ack",
        takes=[
            word("id", f"{ID} (default: the one you have claimed)", nargs="?", default=""),
            word("outcome", "done, failed, rejected (default: done)", nargs="?", default=""),
            AS,
            value("--result", "TEXT", "goes back to the sender as submit_result; - is stdin", None),
            value("--summary", "LINE", "a sentence for the receipt"),
            value("--fence", "N", "as `claim` told it: settle only that claim", 0),
        ],
        more='example:\n  switchboard mail ack 3f2a --result "The parser is in src/parser.py"',
    ),
    "mail wait": Command(
        "mail wait [OPTIONS]",
        "Wait until there is mail, then show it. Exit code 1 where the time is over.",
        run="mail.wait:run",
        takes=[
            AS,
            value("--timeout", "SECONDS", "give up then (default: never)", 0.0),
            switch("--new", "only for what comes from now on"),
            choice("--host", ("claude-code",), "as a hook that wakes this host (see the guide)"),
        ],
    ),
    "mail receipts": Command(
        "mail receipts [ID …] [OPTIONS]",
        "Show what became of messages that you sent.",
        run="mail.read:run_receipts",
        takes=[
            word("ids", "of these messages only; enough of their last characters", metavar="ID", nargs="*"),
            AS,
            LIMIT,
            value("--wait", "SECONDS", "wait until the named ones have ended", 0.0),
        ],
    ),
    "mail search": Command(
        "mail search [WORDS …] [OPTIONS]",
        "Find messages that you received.",
        run="mail.read:run_search",
        takes=[
            word("words", "what it is about", nargs="*"),
            AS,
            value("--from", "NAME", "only from this agent", dest="sender"),
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
        takes=[
            word("words", "what to do", metavar="add NAME | role NAME ROLE", nargs="*"),
            AS,
            value("--purpose", "LINE", "with add: what it is for"),
        ],
        more="examples:\n"
        '  switchboard mail agents add ada --purpose "the one with the plan"\n'
        "  switchboard mail agents role ada lead --as ada",
    ),
    "mail teams": Command(
        "mail teams [create TEAM MEMBER …] [OPTIONS]",
        "Show the teams, or make one. With --role it is one agent that plays several roles.",
        run="mail.people:run_teams",
        takes=[
            word("words", "what to do", metavar="create TEAM MEMBER …", nargs="*"),
            AS,
            many("--role", "ROLE", "with create, for a team of one: a role that it plays", dest="roles"),
        ],
    ),
    "mail workflow": Command(
        "mail workflow [start NAME | complete [PHASE] | skip [PHASE] | stop] [OPTIONS]",
        "Show the workflows that can be started and those under way, or move one on.",
        run="mail.workflow:run",
        takes=[
            word(
                "words",
                "what to do (default: show)",
                metavar="start NAME | complete [PHASE] | skip [PHASE] | stop",
                nargs="*",
            ),
            AS,
            value("--workflow", "ID", "which one (default: the one you are in)"),
            many("--part", "PART=AGENT", "start: who does what", dest="parts"),
            value("--subject", "LINE", "start: what it is about"),
            many("--artifact", "FILE", "complete: a file made", dest="artifacts"),
            value("--next", "PHASE", "complete, skip: where to, if there is a choice"),
            value("--reason", "LINE", "skip, stop: why; is recorded"),
            value("--note", "LINE", "complete: a sentence for the record"),
        ],
        more="examples:\n"
        "  switchboard mail workflow start review --part author=coder --part reviewer=bob --as lead\n"
        "  switchboard mail workflow complete submit --artifact src/parser.py --as coder\n"
        '  switchboard mail workflow stop --reason "not needed any more" --as lead',
    ),
    "mail dead": Command(
        "mail dead [requeue ID …] [OPTIONS]",
        "Show what was set aside: rejected, never settled, or no message at all; or put one back into its inbox, as\n"
        "new. Everybody's, unless you say which agent you are.",
        run="mail.dead:run",
        takes=[
            word("words", "what to do", metavar="requeue ID …", nargs="*"),
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
        takes=[
            value("--older", "AGE", "how long ago: 30d, 12h", required=True),
            switch("--dry-run", "only say how much it would be"),
        ],
    ),
    "mail hook": Command(
        "mail hook [--host HOST] [OPTIONS]",
        "For hosts that run a command at a turn's end or before a prompt: says what is unread, in its own form.\n"
        "Silent where nothing is. Says who wrote and what kind of message it is, never what stands in it.",
        run="mail.hook:run",
        takes=[
            AS,
            choice("--host", HOSTS, "whose form to speak (default: what stdin looks like)"),
        ],
        more="The agent is --as, SWITCHBOARD_AGENT, or the one that registered from this host's own session.",
    ),
}
