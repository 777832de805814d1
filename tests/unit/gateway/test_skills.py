"""Skills of children: listed together, under URIs that tell the children apart, and locked by their digests."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from msgspec import Raw

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.children.locking.lock_file import compare_children, lock_child
from switchboard_mcp.config.sections import Expose
from tests.cases import each_case
from tests.unit.gateway.board import ECHO, FOLDER, PREFIX, Board, FakeChild, Json, open_board

MAIN, MORE = "skill://acme/refunds/SKILL.md", "skill://acme/refunds/a.md"
SKILL: Json = {
    "uri": MAIN,
    "frontmatter": {"name": "refunds", "description": "How to refund."},
    "resources": [{"uri": uri, "digest": f"sha256:{'0' * 64}", "size": 3} for uri in (MAIN, MORE)],
}


def renamed(child: str) -> Json:
    """The skill as hosts see it."""
    text = json.dumps(SKILL).replace("skill://acme", f"skill://{child}/acme")
    value: Json = json.loads(text)
    return value


def add(board: Board, name: str, **suite: Any) -> FakeChild:
    def answer(message: Json) -> Json | None:
        uri = message.get("params", {}).get("uri", "")
        if message["method"] == "skills/get":
            return (
                {"result": {"skill": SKILL}} if uri == MAIN else {"error": {"code": -32602, "message": "no"}}
            )
        if message["method"] == "resources/read":
            return {"result": {"contents": [{"uri": uri, "text": f"{name}: {uri}"}]}}
        if message["method"] == "resources/directory/read":
            return {"result": {"resources": [{"uri": MORE, "name": "a"}]}}
        return None

    lists: dict[str, list[Json]] = {
        "skills/list": [SKILL],
        "resources/list": [],
        "resources/templates/list": [],
    }
    return board.child(name, "modern", tools=[dict(ECHO)], lists=lists, script=answer, **suite)


@pytest.fixture
def both(board: Board) -> Board:
    """Two children with the same skill, both known."""
    for name in ("one", "two"):
        add(board, name)
    for name in ("one", "two"):
        board.host(modern=True).call("echo", f"{name}_suite")
    return board


@pytest.mark.parametrize("modern", [False, True])
def test_the_skills_of_all_children_are_listed(both: Board, modern: bool) -> None:
    host = both.host(modern=modern)
    assert host.get("skills/list")["skills"] == [renamed("one"), renamed("two")]
    if modern:
        offered = host.get("server/discover")["capabilities"]["extensions"]
        assert offered == {PREFIX + "skills": {}}


def test_a_resource_of_a_skill_is_read_from_its_child(both: Board) -> None:
    host = both.host(modern=True)
    assert host.get("skills/get", {"uri": "skill://two/acme/refunds/SKILL.md"})["skill"] == renamed("two")
    (content,) = host.get("resources/read", {"uri": "skill://two/acme/refunds/a.md"})["contents"]
    assert content == {"uri": "skill://two/acme/refunds/a.md", "text": f"two: {MORE}"}
    folder = host.get("resources/directory/read", {"uri": "skill://one/acme/refunds"})
    assert folder["resources"] == [{"uri": "skill://one/acme/refunds/a.md", "name": "a"}]


@pytest.mark.parametrize(
    "uri", [MORE, "skill://two/acme/refunds/other.md", "skill://three/acme/refunds/a.md"]
)
def test_a_resource_of_no_skill_or_of_two_is_unknown(both: Board, uri: str) -> None:
    host = both.host(modern=True)
    assert host.error(host.ask("resources/read", {"uri": uri}))["code"] == -32602


def test_a_denied_skill_does_not_exist(board: Board) -> None:
    add(board, "kid", expose=Expose(deny=["skill://*"]))
    board.host(modern=True).call()
    host = board.host(modern=True)
    assert host.get("skills/list")["skills"] == []
    assert host.error(host.ask("skills/get", {"uri": "skill://kid/acme/refunds/SKILL.md"}))["code"] == -32602


def test_introspect_names_them_for_hosts_that_know_no_skills(both: Board) -> None:
    asked = {"name": "one_suite", "arguments": {"action": "introspect"}}
    shown = json.loads(both.host().get("tools/call", asked)["content"][0]["text"])
    assert "- refunds: How to refund. (skill://one/acme/refunds/SKILL.md)" in shown["instructions"]


def test_without_skills_the_methods_do_not_exist(board: Board) -> None:
    board.child()
    host = board.host()
    assert host.error(host.ask("skills/list"))["code"] == -32601
    assert host.error(host.ask("skills/get", {"uri": MAIN}))["code"] == -32601


def test_one_byte_of_a_file_is_drift(board: Board) -> None:
    child = add(board, "kid")

    def locked(skill: Json) -> object:
        known = ServerSnapshot(lists={"skills/list": [Raw(json.dumps(skill).encode())]})
        return lock_child(child.spec, FOLDER, known)

    changed = json.loads(json.dumps(SKILL))
    changed["resources"][1]["digest"] = f"sha256:{'1' * 64}"
    (change,) = compare_children(locked(SKILL), locked(changed))  # type: ignore[arg-type]
    assert change.tool == f"skill {MAIN}"
    assert change.part == "files"


@each_case("manifest", [False, True], board=open_board)
def test_skills_of_a_server_with_handshakes_are_built_from_its_resources(
    board: Board, manifest: bool
) -> None:
    texts = {
        "skill://refunds/SKILL.md": "---\nname: refunds\ndescription: 'How to refund.'\nnested:\n  a: b\n---\nx\n",
        "skill://refunds/a.md": "abc",
        "skill://other/SKILL.md": "no head",
    }
    files = [{"path": "SKILL.md", "size": 1, "hash": "sha256:1"}, {"path": "a.md", "size": 3, "hash": "2"}]
    if manifest:
        texts["skill://refunds/_manifest"] = json.dumps({"skill": "refunds", "files": files})

    def answer(message: Json) -> Json | None:
        if message["method"] != "resources/read":
            return None
        uri = message["params"]["uri"]
        return {"result": {"contents": [{"uri": uri, "text": texts[uri]}]}}

    lists: dict[str, list[Json]] = {
        "resources/list": [{"uri": uri, "name": uri} for uri in texts],
        "resources/templates/list": [],
    }
    kid = board.child(lists=lists, script=answer)
    host = board.host()
    host.call()
    (skill,) = host.get("skills/list")["skills"]
    assert skill["uri"] == "skill://kid/refunds/SKILL.md"
    assert skill["frontmatter"] == {"name": "refunds", "description": "How to refund."}
    found = {file["uri"]: (file["digest"], file["size"]) for file in skill["resources"]}
    digest = "sha256:2" if manifest else f"sha256:{hashlib.sha256(b'abc').hexdigest()}"
    assert found["skill://kid/refunds/a.md"] == (digest, 3)
    assert len(found) == 2
    assert host.get("skills/get", {"uri": skill["uri"]})["skill"] == skill
    (content,) = host.get("resources/read", {"uri": "skill://kid/refunds/a.md"})["contents"]
    assert content["text"] == "abc"
    assert kid.server.requests("skills/get") == []
