"""Real hosts: the request that a host sends to its model has the selected or shortened text of a result, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.host import SWITCHBOARD
from tests.e2e.workspaces import add_child, scripted
from tests.hosts.model import scripted as scripted_model
from tests.hosts.programs import HOSTS, CopilotCli, HostProgram, Stdio

pytestmark = [pytest.mark.e2e, pytest.mark.soak("hosts")]

# The value is in the text and in the structured content; each host shows its model one of them, or both.
CHILD = """
import json
class Rows(Child):
    def call(self, request_id, params, line):
        count = int(params["arguments"]["message"])
        rows = [{"id": f"id-{n}-end", "kind": "ab"[n % 2] * (n % 5), "note": "some words " * 3} for n in range(count)]
        self.answer(request_id, {**text(json.dumps({"rows": rows}, indent=2)), "structuredContent": {"rows": rows}})
Rows().serve()
"""
FIRST, LAST = "id-0-end", "id-299-end"


class Case(NamedTuple):
    """A call, and what its model must and must not see."""

    rows: int
    more: dict[str, Any]
    seen: tuple[str, ...]
    unseen: tuple[str, ...]


CASES = {
    "selected": Case(300, {"select": "rows[0].id"}, (FIRST,), (LAST, "some words")),
    "shortened": Case(300, {}, (FIRST, "tokens shown. More:"), (LAST,)),
    "one copy": Case(2, {}, (FIRST, "id-1-end"), ()),
}


@pytest.mark.parametrize("kind", [*HOSTS, CopilotCli], ids=lambda kind: kind.name)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_model_sees_what_was_selected_or_shortened_once(
    kind: type[HostProgram], case: Case, workspace: Path, tmp_path: Path
) -> None:
    host = kind(tmp_path / "home")
    host.command()  # skips where there is none
    add_child(workspace, "rows", scripted(CHILD))
    arguments = {"action": "call", "subtool": "echo", "args": {"message": str(case.rows)}, **case.more}
    with scripted_model("rows_suite", arguments) as model:
        host.configure(Stdio([*SWITCHBOARD, "--workspace", str(workspace)]), model.url)
        told = host.prompt_until(lambda _: model.results)
    seen = "".join(model.results)
    assert seen, (told, model.tools)
    assert {text: seen.count(text) for text in case.seen} == dict.fromkeys(case.seen, 1), seen[:2000]
    assert not [text for text in case.unseen if text in seen]
