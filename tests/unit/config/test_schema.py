from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from switchboard_mcp.config import documents
from switchboard_mcp.config.models import Config
from switchboard_mcp.config.schema import SCHEMAS, json_schema, render

EXAMPLE: dict[str, Any] = {
    "$schema": "./switchboard.config.schema.json",
    "discoverGlobs": [".switchboard/mcps/*/.mcp.json", "mcps/*/.mcp.json"],
    "mcpServers": {
        "a": {"command": "npx", "args": ["-y", "p"], "env": {"K": "V", "N": 1}, "autoApprove": []},
        "b": {"url": "https://b", "headers": {"X": "y"}, "type": "http"},
        "c": {"command": {"cmd": "x", "args": [], "env": {}}, "rpcTimeoutMs": 5},
    },
    "suites": {
        "<child>": {
            "suiteName": "",
            "description": "",
            "expose": {"allow": [], "deny": []},
            "exposure": "suite",
            "summaryMaxChars": 160,
            "rpcMs": 60000,
            "redactArgs": [],
        }
    },
    "timeouts": {"childSpawnMs": 8000, "rpcMs": 60000, "idleMs": 600000},
    "introspection": {"mode": "summary", "summaryMaxChars": 160, "budgetTokens": 1200},
    "governance": {"mode": "open"},
    "mail": {"enabled": False},
    "find": {"enabled": False},
    "http": {},
    "bus": {},
    "ask": {},
}


def is_valid(config: object) -> bool:
    return jsonschema.Draft202012Validator(json_schema()).is_valid(config)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_published_file_is_current(repo: Path) -> None:
    for name in SCHEMAS:
        assert (repo / f"switchboard.{name}.schema.json").read_text(encoding="utf-8") == render(name)


def test_the_documented_example_is_valid() -> None:
    jsonschema.validate(EXAMPLE, json_schema())


def test_the_defaults_are_valid_and_stated() -> None:
    defaults = msgspec.to_builtins(Config())
    jsonschema.validate(defaults, json_schema())
    stated = {
        name: shape["default"] for name, shape in json_schema()["properties"].items() if name != "$schema"
    }
    assert stated == defaults


@pytest.mark.parametrize(
    "config",
    [
        {"sutes": {}},
        {"suites": {"a": {"expose": {"alow": []}}}},
        {"timeouts": {"rpcMs": 0}},
        {"timeouts": {"rpcMs": "5"}},
        {"introspection": {"mode": "loud"}},
        {"governance": {"mode": "strict"}},
        {"mail": {"exposure": "auto"}},
        {"http": {"port": 70000}},
        {"mcpServers": {"a": 1}},
    ],
)
def test_what_loading_refuses_or_skips_the_schema_refuses(config: object) -> None:
    assert not is_valid(config)


def test_every_setting_and_section_is_described() -> None:
    for make in SCHEMAS.values():
        schema = make()
        for shape in (schema, *schema["$defs"].values()):
            assert shape["description"]
            assert [name for name, part in shape["properties"].items() if not part.get("description")] == []


def test_the_examples_of_the_repository_are_valid(repo: Path) -> None:
    found = sorted((repo / "examples").glob("*/switchboard.config.json"))
    assert found
    for path in found:
        jsonschema.validate(documents.read_document(str(path)), json_schema())


def test_the_text_ends_with_one_newline_and_is_stable() -> None:
    assert render().endswith("}\n")
    assert json.loads(render()) == json_schema()
