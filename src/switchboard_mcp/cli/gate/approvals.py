"""`switchboard approvals`: list and answer the questions of calls that wait for the user."""

from __future__ import annotations

import os
import sys
import time

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.cli.console import Styled, format_duration
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, positional
from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.gate.open_questions import (
    StoredQuestion,
    questions_folder,
    stored_questions,
    write_answer,
)
from switchboard_mcp.suites.fuzzy import did_you_mean

SEE_ALL = "`switchboard approvals` lists the open questions."


def run(invocation: Invocation) -> int:
    """List the questions, or answer one."""
    folder = questions_folder(workspace_folder(invocation.options), os.environ)
    questions = stored_questions(folder) if folder else []
    if invocation.args.action == "list":
        return _list(questions, invocation)
    return _answer(folder, questions, invocation)


COMMAND = Command(
    "approvals [list|allow|deny] [ID] [OPTIONS]",
    "Calls that wait for your decision because a rule in `gate` of the config asks, and their host cannot ask you.\n"
    "An answer is only taken from a terminal, so that an agent with a shell cannot answer for you by accident.",
    run=run,
    arguments=[
        positional(
            "action",
            "what to do (default: list)",
            metavar="list|allow|deny",
            nargs="?",
            default="list",
            choices=("list", "allow", "deny"),
        ),
        positional("id", "the question, as listed; the only one if not named", nargs="?", default=""),
    ],
    epilog="examples:\n  switchboard approvals\n  switchboard approvals allow 3fa29c01",
)


def _list(questions: list[StoredQuestion], invocation: Invocation) -> int:
    out = invocation.console.out
    if invocation.as_json:
        out.json({"questions": questions})
    elif questions:
        now = time.time()
        rows = [
            (
                Styled(question.id, "bold"),
                f"{question.child} {question.subtool}",
                question.masked_arguments or question.arguments,
                question.client,
                question.reason,
                format_duration(max(question.expires_at - now, 0)),
            )
            for question in questions
        ]
        out.table(rows, ("ID", "CALL", "ARGUMENTS", "CLIENT", "WHY", "LEFT"))
        for question in questions:
            # Whole: nobody should allow what he has not seen.
            out.line(f"\nArguments of {question.id}:", "bold")
            out.text(question.arguments)
            if question.code:
                out.line(f"\nCode of {question.id}:", "bold")
                out.text(question.code)
                out.line(f"(end of the code of {question.id})", "dim")
        out.line("Answer with `switchboard approvals allow ID` or `deny ID`.", "dim")
    else:
        out.line("No call waits for a decision.", "dim")
    return 0


def _answer(folder: str, questions: list[StoredQuestion], invocation: Invocation) -> int:
    question = _chosen(questions, invocation.args.id)
    if not sys.stdin.isatty():
        message = "Questions can only be answered from a terminal."
        hint = "Run the command in your own terminal."
        raise refused("setup_refused", message, hint=hint)
    allow = invocation.args.action == "allow"
    write_answer(folder, question.id, allow=allow)
    answer = {"id": question.id, "child": question.child, "subtool": question.subtool, "allow": allow}
    word, style = ("Allowed", "green") if allow else ("Denied", "red")
    invocation.report(answer, f"{word}: {question.child} {question.subtool}. {question.scope}", style)
    return 0


def _chosen(questions: list[StoredQuestion], id: str) -> StoredQuestion:
    if not id and len(questions) == 1:
        return questions[0]
    if not id:
        message = "Name the question." if questions else "No call waits for a decision."
        raise usage_error(message, SEE_ALL)
    for question in questions:
        if question.id == id:
            return question
    ids = [question.id for question in questions]
    raise usage_error(f"There is no open question '{id}'.{did_you_mean(id, ids)}", SEE_ALL)
