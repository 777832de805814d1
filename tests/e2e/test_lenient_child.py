"""A lenient server behind allow and deny lists: what is denied or not listed does not reach it in any spelling."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.children.lenient import REACHED
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.workspaces import add_child, configure

LENIENT = Path(__file__).parent.parent / "children" / "lenient.py"
DENY = {"expose": {"deny": ["delete*", "secret*", "mem://host/secret*"]}}


@pytest.fixture(scope="module", params=["direct", "suite"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    workspace = tmp_path_factory.mktemp("lenient")
    configure(workspace, {"suites": {"kid": {"exposure": request.param, **DENY}}})
    add_child(workspace, "kid", [sys.executable, str(LENIENT)])
    with switchboard(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as running:
        running.initialize()
        yield running


def answer(host: Host, method: str, params: Json) -> str:
    """The whole answer, as text."""
    return json.dumps(host.request(method, params), ensure_ascii=False)


def in_both_forms(name: str) -> list[str]:
    return [name, f"switchboard://kid/{name}" if "://" in name else f"kid__{name}"]


@each_case("name", ["delete", "Delete", "delete ", "DELETE", "remove", "read ", ""])
def test_a_tool_that_is_denied_or_not_listed(host: Host, name: str) -> None:
    assert REACHED not in answer(host, "tools/call", {"name": name, "arguments": {}})
    suite = {"name": "kid_suite", "arguments": {"action": "call", "subtool": name or "x", "args": {}}}
    assert REACHED not in answer(host, "tools/call", suite)


@each_case("name", ["secret", "Secret", "greet ", "other"])
def test_a_prompt_that_is_denied_or_not_listed(host: Host, name: str) -> None:
    for form in in_both_forms(name):
        assert REACHED not in answer(host, "prompts/get", {"name": form})


@each_case(
    "uri",
    [
        "mem://host/secret/key",
        "mem://host/open/../secret/key",
        "mem://host/open/%2e%2e/secret/key",
        "mem://host/open/%252e%252e/secret/key",
        "mem://host/open/..%2fsecret/key",
        "mem://host/open/..\\secret/key",
        "mem://host//secret/key",
        "mem://host/./secret/key",
        "mem://host/%73ecret/key",
        "MEM://host/secret/key",
        "mem://HOST/secret/key",
        "mem://host/secret/key?x",
        "mem://host/secret/key#x",
        "mem://host/secret/key/",
        "mem://host/secret%2fkey",
    ],
)
def test_a_denied_resource_in_any_spelling(host: Host, uri: str) -> None:
    for form in in_both_forms(uri):
        assert REACHED not in answer(host, "resources/read", {"uri": form})


@each_case("method", ["Tools/Call", "tools/call ", "tools//call", "vendor/run", "tasks/run"])
def test_a_method_that_mcp_does_not_define(host: Host, method: str) -> None:
    assert "-32601" in answer(host, method, {"name": "delete", "arguments": {}})


def test_what_is_permitted_reaches_it(host: Host) -> None:
    assert f"{REACHED} /open/plan" in answer(host, "resources/read", {"uri": "mem://host/open/plan"})
    assert f"{REACHED} /open/a b" in answer(host, "resources/read", {"uri": "mem://host/open/a%20b"})
    names = [prompt["name"] for prompt in host.result("prompts/list")["prompts"]]
    assert f"{REACHED} greet" in answer(host, "prompts/get", {"name": names[0]})
