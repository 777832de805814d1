"""Valid definitions, assignment of parts, and which messages fit a run."""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.workflows.definitions import Definition, WorkflowRun
from switchboard_mcp.mail.workflows.rules import (
    MessageFacts,
    RunMembership,
    assign_parts,
    definition_errors,
    match_message,
)
from tests.cases import each_case

AT, DUE, LATE = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z"
WRITE = {"name": "write", "by": "author", "does": "w"}
LOOK = {"name": "look", "by": "reviewer", "does": "l", "ask": "request_review", "maySend": ["submit_result"]}


def definition(**more: Any) -> Definition:
    result = {
        "name": "round",
        "parts": {"author": "coder 1", "reviewer": "reviewer"},
        "phases": [WRITE, LOOK],
        "distinct": ["author", "reviewer"],
        **more,
    }
    return msgspec.convert(result, Definition)


def test_the_deprecated_name_of_distinct_is_accepted_in_files_and_in_stored_runs() -> None:
    old = {key: value for key, value in msgspec.to_builtins(definition()).items() if key != "distinct"}
    converted = msgspec.convert({**old, "apart": ["author", "reviewer"]}, Definition)
    assert converted == definition()
    assert "apart" not in msgspec.to_builtins(converted)


@each_case(
    ("more", "key", "expected"),
    [
        ({"parts": {}}, "parts", "at least one part"),
        ({"parts": {"author": "boss", "reviewer": ""}}, "parts.author", "is not a role"),
        ({"parts": {"author": "", "reviewer": "", "A B": ""}}, "parts.A B", "lower-case"),
        ({"distinct": ["author", "judge"]}, "distinct[1]", "no part 'judge'; known: author, reviewer"),
        ({"phases": [WRITE, WRITE]}, "phases[1].name", "'write' is taken"),
        ({"phases": [{**WRITE, "name": "end"}]}, "phases[0].name", "'end' is taken"),
        ({"phases": [{**WRITE, "by": "judge"}]}, "phases[0].by", "no part 'judge'"),
        ({"phases": [{**WRITE, "next": ["nap"]}, LOOK]}, "phases[0].next[0]", "no phase 'nap'"),
        ({"phases": [{**WRITE, "unchanged": ["nap"]}]}, "phases[0].unchanged[0]", "no phase 'nap'"),
        ({"phases": [{**WRITE, "artifacts": ["../x"]}]}, "phases[0].artifacts[0]", "inside the workspace"),
        ({"phases": [{**WRITE, "artifacts": ["/x"]}]}, "phases[0].artifacts[0]", "inside the workspace"),
        (
            {"phases": [{**WRITE, "artifacts": [".switchboard/state.json"]}]},
            "phases[0].artifacts[0]",
            "only below",
        ),
        ({"phases": [{**WRITE, "next": ["end"]}, LOOK]}, "phases[1].name", "no phase leads to 'look'"),
        ({"phases": [WRITE, {**LOOK, "next": ["write"]}]}, "phases[0].next", "cannot reach 'end'"),
    ],
)
def test_a_fault_of_a_definition_is_reported_with_its_key(
    more: dict[str, Any], key: str, expected: str
) -> None:
    found = {fault.key: fault.message for fault in definition_errors(definition(**more))}
    assert expected in found[key]


def test_a_sound_definition_has_no_faults() -> None:
    assert definition_errors(definition()) == []


@each_case(
    ("assigned", "roles", "starter", "parts"),
    [
        ({"author": "ada", "reviewer": "bob"}, {}, "lead", {"author": "ada", "reviewer": "bob"}),
        ({}, {"ada": "coder 1", "bob": "reviewer"}, "lead", {"author": "ada", "reviewer": "bob"}),
        ({"reviewer": "bob"}, {}, "ada", {"author": "ada", "reviewer": "bob"}),
        ({}, {"bob": "reviewer"}, "ada", {"author": "ada", "reviewer": "bob"}),
        # Of several in a role the starter is meant, if it is one of them.
        (
            {},
            {"ada": "coder 1", "eve": "coder 1", "bob": "reviewer"},
            "ada",
            {"author": "ada", "reviewer": "bob"},
        ),
        # Distinct parts do not go to one agent.
        (
            {"author": "bob"},
            {"bob": "reviewer", "eve": "reviewer"},
            "x",
            {"author": "bob", "reviewer": "eve"},
        ),
    ],
)
def test_parts_go_to_who_is_named_then_by_role_then_to_the_starter(
    assigned: dict[str, str], roles: dict[str, str], starter: str, parts: dict[str, str]
) -> None:
    assert assign_parts(definition(), assigned, roles, starter) == parts


@each_case(
    ("assigned", "roles", "expected"),
    [
        ({"judge": "ada"}, {}, "no part 'judge'; known: author, reviewer"),
        ({}, {}, "who is author and who is reviewer"),
        ({}, {"ada": "coder 1", "bob": "reviewer", "eve": "reviewer", "x": "coder 1"}, "who is author and"),
        ({"author": "ada", "reviewer": "ada"}, {}, "must be different agents"),
        ({"author": "me"}, {}, "who is reviewer"),
    ],
)
def test_parts_that_nobody_can_have_are_reported(
    assigned: dict[str, str], roles: dict[str, str], expected: str
) -> None:
    refused = assign_parts(definition(), assigned, roles, "me")
    assert isinstance(refused, Failure)
    assert expected in refused.message


def run(phase: str = "write", **more: Any) -> WorkflowRun:
    result: dict[str, Any] = {
        "id": "r",
        "definition": definition(),
        "agents": {"author": "ada", "reviewer": "bob"},
        "subject": "",
        "started_by": "lead",
        "started_at": AT,
        "due": DUE,
        "phase": phase,
    }
    return WorkflowRun(**{**result, **more})


def sending(
    action: str, sender: str, recipient: str, workflow: object = None, verified: bool = True
) -> MessageFacts:
    return MessageFacts(
        action=action, sender=sender, recipient=recipient, verified=verified, workflow=workflow
    )


@each_case(
    ("phase", "message", "role"),
    [
        ("write", sending("delegate_task", "lead", "ada"), "coder 1"),
        ("write", sending("delegate_task", "lead", "ada", "r"), "coder 1"),
        ("look", sending("request_review", "ada", "bob"), "reviewer"),
        ("look", sending("submit_result", "bob", "ada", "r"), "coder 1"),
        ("look", sending("status_update", "ada", "lead", "r"), ""),
        ("look", sending("request_review", "ada", "bob", verified=False), "reviewer"),
    ],
)
def test_a_message_that_fits_the_phase_belongs_to_the_run(
    phase: str, message: MessageFacts, role: str
) -> None:
    assert match_message([run(phase)], message, AT) == RunMembership("r", phase, role)


@each_case(
    ("phase", "message", "code", "expected"),
    [
        ("write", sending("request_review", "ada", "bob"), "mail_workflow_refused", "in phase 'write'"),
        ("write", sending("request_review", "ada", "bob", "r"), "mail_workflow_refused", "in phase 'write'"),
        (
            "write",
            sending("submit_result", "bob", "ada", "r"),
            "mail_workflow_refused",
            "and all may send status_update",
        ),
        ("look", sending("delegate_task", "ada", "bob"), "mail_workflow_refused", "request_review to 'bob'"),
        ("look", sending("delegate_task", "lead", "ada"), "mail_workflow_refused", "in phase 'look'"),
        ("look", sending("status_update", "eve", "bob", "r"), "mail_workflow_refused", "'eve' has no part"),
        ("look", sending("status_update", "bob", "eve", "r"), "mail_workflow_refused", "'eve' has no part"),
        ("look", sending("status_update", "bob", "ada", "x"), "mail_workflow_unknown", "'x'"),
        ("look", sending("status_update", "bob", "ada", ["r"]), "mail_workflow_unknown", "r"),
        ("look", sending("delegate_task", "eve", "bob"), "mail_agent_busy", f"at the latest {DUE}"),
        ("look", sending("delegate_task", "eve", "ada", verified=False), "mail_agent_busy", "phase 'look'"),
    ],
)
def test_a_message_that_does_not_fit_is_refused(
    phase: str, message: MessageFacts, code: str, expected: str
) -> None:
    refused = match_message([run(phase)], message, AT)
    assert isinstance(refused, Failure)
    assert refused.code == code
    assert expected in refused.message


@each_case(
    "message",
    [
        sending("status_update", "eve", "bob"),
        sending("request_review", "eve", "bob"),  # only what the definition protects from is refused
        sending("submit_result", "bob", "ada"),  # may answer anything
        sending("delegate_task", "bob", "eve"),
        sending("delegate_task", "eve", "lead"),  # who has started it has no part in it
    ],
)
def test_other_messages_are_nobodys_business(message: MessageFacts) -> None:
    assert match_message([run("look")], message, AT) is None


def test_a_waiter_that_times_out_is_free_again() -> None:
    assert match_message([run()], sending("delegate_task", "eve", "bob"), LATE) is None
    assert match_message([run(status="finished")], sending("delegate_task", "eve", "bob"), AT) is None


def test_nothing_belongs_to_a_run_that_is_over() -> None:
    refused = match_message([run(status="stopped")], sending("status_update", "bob", "ada", "r"), AT)
    assert isinstance(refused, Failure)
    assert "is stopped" in refused.message


def test_a_phase_may_take_verified_senders_only() -> None:
    strict = run("look", definition=definition(phases=[WRITE, {**LOOK, "verified": True}]))
    dropped = match_message([strict], sending("request_review", "ada", "bob", verified=False), AT)
    assert isinstance(dropped, Failure)
    assert "only accepts messages from verified senders" in dropped.message
    assert match_message([strict], sending("request_review", "ada", "bob"), AT) == RunMembership(
        "r", "look", "reviewer"
    )
