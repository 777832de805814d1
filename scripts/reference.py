#!/usr/bin/env python3
"""Writes docs/reference from the code, the list of decisions, the diagrams in docs/concepts.md, and example evidence.

scripts/reference.py           write
scripts/reference.py --check   fail when a page is not what would be written
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reference_api
import reference_commands
import reference_evidence
import reference_metrics
import reference_modules
import schemas

from switchboard_mcp.children import health, lifecycle, restart_rules
from switchboard_mcp.errors import KINDS
from switchboard_mcp.mail.workflows import definitions
from switchboard_mcp.mail.workflows.library import bundled

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Written by scripts/reference.py. Change the code, then run `make docs`. -->"
Node = dict[str, Any]

DECISIONS = """\
# Decisions

{note}

Architecture decision records: one page for each decision, with its context and consequences.
Numbers that are missing belong to decisions that were withdrawn or about features that were removed.

| | decision | status |
| --- | --- | --- |
{rows}
"""

SETTINGS = """\
# Settings

{note}

`switchboard.config.json` (comments allowed) or `switchboard.config.toml` in the workspace. All keys are optional.
An unknown key is an error that names file, key and the nearest known key.

{sections}
"""
HEAD = "| key | value | default | meaning |\n| --- | --- | --- | --- |\n"

FAILURES = """\
# Failures

{note}

A failed suite call is a tool result with `isError: true`; `structuredContent.error.code` is one of these.
Outside a suite call the same failure is a JSON-RPC error with the code in the third column.

| code | may trying again help? | JSON-RPC | what to do |
| --- | --- | --- | --- |
{rows}
"""

LIFE = """\
# The life of a child

{note}

```mermaid
stateDiagram-v2
    [*] --> configured
{arrows}
```

| state | event | next state | what is done |
| --- | --- | --- | --- |
{rows}

## Health

| state | health |
| --- | --- |
{healths}

Calls reach a child only while it is healthy or on probation; one that is untried is started first. In all other states
they are rejected with a structured error whose `retryAfterMs` says when to retry.

| | open mode | governed mode | setting |
| --- | --- | --- | --- |
{measures}

After the first failure a restart is permitted at once, then after {waits}, then the child is quarantined.
After a call timeout the child is probed with `ping`, or with `server/discover` in protocol versions without handshakes.
Any answer at all will do; a call that is only slow does not make a child unhealthy.
A start that failed for a lasting reason, such as a missing program, may be tried again after {recheck:g} s.
"""

WORKFLOWS = """\
# Workflows

{note}

How they are used and defined: [docs/workflows.md](../workflows.md).

## The life of a run

```mermaid
stateDiagram-v2
    [*] --> running
{life}
```

A step is a phase `completed` or `skipped`; `concluded` is one along an arrow to `end`. A run that is over stays so.

{definitions}
"""

WORKFLOW = """\
## {name}

{description}

```mermaid
stateDiagram-v2
    [*] --> {first}
{arrows}
```

Parts: {parts}.{apart}

| phase | by | asked with | artifacts | unchanged since | goes to | rounds |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"""


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("\n", " ").replace("|", "\\|") for cell in cells) + " |"


def resolve(node: Node, schema: Node) -> Node:
    """Return the node with its `$ref` resolved."""
    links = [node, *node.get("allOf", [])]
    reference = next((link["$ref"] for link in links if "$ref" in link), None)
    if reference is None:
        return node
    found: Node = schema
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return {**found, **{key: value for key, value in node.items() if key not in ("$ref", "allOf")}}


def kind(node: Node, schema: Node) -> str:
    """Return the type of a value in words."""
    node = resolve(node, schema)
    if "enum" in node:
        return " or ".join(f"`{json.dumps(value)}`" for value in node["enum"])
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(kind(each, schema) for each in node["anyOf"]))
    if node.get("type") == "array":
        return f"list of {kind(node.get('items', {}), schema)}"
    return str(node.get("type", "any"))


def keys(node: Node, path: str, schema: Node) -> Iterator[str]:
    """Return a row for each key below a node."""
    for name, entry in node.get("properties", {}).items():
        if name == "$schema":
            continue
        child = resolve(entry, schema)
        default = None if "properties" in child else child.get("default")
        shown = "" if default is None else f"`{json.dumps(default)}`"
        yield row(f"`{path}{name}`", kind(child, schema), shown, child.get("description", ""))
        yield from keys(child, f"{path}{name}.", schema)
        more = child.get("additionalProperties")
        if isinstance(more, dict):
            yield from keys(resolve(more, schema), f"{path}{name}.<name>.", schema)


def settings() -> str:
    """Return a table for each group of settings, after one for settings without a group."""
    schema = schemas.schemas()["config"]
    alone, groups = [], []
    for name, entry in schema["properties"].items():
        rows = list(keys({"properties": {name: entry}}, "", schema))
        if len(rows) == 1:
            alone += rows
        elif rows:
            groups.append(f"## {name}\n\n{HEAD}" + "\n".join(rows))
    return SETTINGS.format(note=NOTE, sections="\n\n".join([HEAD + "\n".join(alone), *groups]))


def failures() -> str:
    rows = (
        row(f"`{code}`", "yes" if it.retryable else "no", it.rpc, it.hint)
        for code, it in sorted(KINDS.items())
    )
    return FAILURES.format(note=NOTE, rows="\n".join(rows))


def life() -> str:
    table = [(was, event, now, action) for (was, event), (now, action) in lifecycle.TRANSITIONS.items()]
    last = health.OPEN_RULES.failures
    waits = [restart_rules.decide_restart(number, health.OPEN_RULES).wait_s for number in range(2, last)]
    return LIFE.format(
        note=NOTE,
        arrows="\n".join(
            f"    {was.value} --> {now.value}: {event.value}" for was, event, now, _ in table if was != now
        ),
        rows="\n".join(row(*(cell.value for cell in cells)) for cells in table),
        waits=", ".join(f"{wait:g} s" for wait in waits),
        healths="\n".join(row(state.value, meaning.value) for state, meaning in lifecycle.HEALTH.items()),
        measures="\n".join(measures()),
        recheck=restart_rules.FAULT_RECHECK_S,
    )


def measures() -> Iterator[str]:
    """Return the rules of both modes, side by side."""
    for words, name, unit, setting in (
        ("a start is logged as slow after", "spawn_warn_s", " s", "spawnWarnMs"),
        ("a start fails after", "spawn_fail_s", " s", "spawnFailMs"),
        ("failures in a row to quarantine", "failures", "", "failures"),
        ("length of quarantine", "quarantine_s", " s", "quarantineMs"),
        ("a probe fails after", "probe_s", " s", "probeMs"),
        ("answers from probation to healthy", "successes", "", "successes"),
    ):
        both = (getattr(rules, name) for rules in (health.OPEN_RULES, health.GOVERNED_RULES))
        yield row(
            words, *(f"{value:g}{unit}" if value else "`timeouts`" for value in both), f"`health.{setting}`"
        )


def decisions() -> str:
    """Return the list of docs/adr, from the head of each page."""
    rows = []
    for page in sorted((DOCS / "adr").glob("[0-9]*.md")):
        text = page.read_text(encoding="utf-8")
        title = text.partition("\n")[0].lstrip("# ").split(". ", 1)[-1]
        status = next(
            (line for line in text.split("\n") if line.lower().startswith("status:")), "Status: accepted"
        )
        number = page.name.partition("-")[0].lstrip("0")
        rows.append(row(number, f"[{title}]({page.name})", status.partition(":")[2].strip().rstrip(".")))
    return DECISIONS.format(note=NOTE, rows="\n".join(rows))


def concepts() -> str:
    """Return docs/concepts.md with its diagrams generated from the tables; the text around them is written by hand."""
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    for name, page in (("child-life", life()), ("workflow", workflows())):
        diagram = re.search(r"```mermaid\n.*?```", page, re.DOTALL)
        begin, end = f"<!-- diagram {name} -->", "<!-- end -->"
        before, found, rest = text.partition(begin)
        if not found or diagram is None:
            raise SystemExit(f"docs/concepts.md: the line {begin} is missing")
        text = f"{before}{begin}\n\n{diagram.group()}\n\n{end}{rest.partition(end)[2]}"
    return text


def workflows() -> str:
    texts = [
        workflow_page(found) for found in bundled().values() if isinstance(found, definitions.Definition)
    ]
    arrows = (
        f"    {was} --> {now}: {step}" for (was, step), now in definitions.STATUSES.items() if now != was
    )
    return WORKFLOWS.format(note=NOTE, life="\n".join(arrows), definitions="\n".join(texts).rstrip())


def workflow_page(definition: definitions.Definition) -> str:
    """Return one definition: its arrows as a diagram, its phases as a table."""
    ends = {definitions.END: "[*]"}
    arrows = [
        f"    {phase.name} --> {ends.get(to, to)}"
        for phase in definition.phases
        for to in definition.transitions(phase)
    ]
    roles = {part: f"the agent in the role `{role}`" for part, role in definition.parts.items() if role}
    parts = [f"{part} ({roles.get(part, 'any agent')})" for part in definition.parts]
    apart = f" Different agents: {', '.join(definition.distinct)}." if definition.distinct else ""
    return WORKFLOW.format(
        name=definition.name,
        description=definition.description,
        first=definition.phases[0].name,
        arrows="\n".join(arrows),
        parts=", ".join(parts),
        apart=apart,
        rows="\n".join(
            row(
                phase.name,
                phase.by,
                f"`{phase.ask}`",
                ", ".join(f"`{path}`" for path in phase.artifacts),
                ", ".join(phase.unchanged),
                ", ".join(definition.transitions(phase)),
                f"{phase.rounds}" + ("" if phase.skippable else ", cannot be skipped"),
            )
            for phase in definition.phases
        ),
    )


PAGES = {
    "reference/settings.md": settings,
    "reference/failures.md": failures,
    "reference/child-life.md": life,
    "reference/workflows.md": workflows,
    "reference/commands.md": lambda: reference_commands.commands(NOTE),
    "reference/tools.md": lambda: reference_commands.tools(NOTE),
    "reference/files.md": lambda: reference_commands.files(NOTE),
    "reference/metrics.md": lambda: reference_metrics.metrics(NOTE),
    "reference/api.md": lambda: reference_api.api(NOTE),
    "reference/openapi.json": reference_api.document,
    "hosts/README.md": lambda: reference_commands.hosts(NOTE),
    "adr/README.md": decisions,
    "reference/modules.md": lambda: reference_modules.modules(NOTE),
    "code.md": lambda: reference_modules.code_map(DOCS / "code.md"),
    "concepts.md": concepts,
    **reference_evidence.PAGES,
}


def main() -> int:
    stale = {name: text for name, write in PAGES.items() if not _same(DOCS / name, text := write())}
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/{name} is not current: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for name, text in stale.items():
        (DOCS / name).write_text(text, encoding="utf-8")
    return 0


def _same(page: Path, text: str) -> bool:
    return page.exists() and page.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
