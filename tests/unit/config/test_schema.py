from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import msgspec

from switchboard_mcp.config import documents
from switchboard_mcp.config.files.schema_files import SCHEMAS, read_schema
from switchboard_mcp.config.models import Config
from tests.cases import each_case
from tests.conftest import REPO, published_schema

NAMES = sorted(
    path.name.split(".")[1] for path in REPO.glob("src/switchboard_mcp/schemas/switchboard.*.schema.json")
)
SCHEMA = published_schema("config")


def test_every_schema_has_a_name_for_the_command() -> None:
    assert sorted(SCHEMAS) == NAMES
    assert all(read_schema(name).startswith(b"{") for name in NAMES)


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
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(config)


@each_case("name", NAMES)
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(published_schema(name))


def test_the_documented_example_is_valid() -> None:
    jsonschema.validate(EXAMPLE, SCHEMA)


def test_the_defaults_are_valid_and_stated() -> None:
    defaults = msgspec.to_builtins(Config())
    jsonschema.validate(defaults, SCHEMA)
    stated = {name: shape.get("default") for name, shape in SCHEMA["properties"].items() if name != "$schema"}
    assert stated == defaults


@each_case(
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
def test_the_schema_refuses_what_loading_refuses_or_skips(config: object) -> None:
    assert not is_valid(config)


def test_every_setting_and_section_is_described() -> None:
    for name in NAMES:
        schema = published_schema(name)
        for shape in (schema, *schema.get("$defs", {}).values()):
            assert shape["description"]
            result = shape.get("properties", {}).items()
            assert [name for name, part in result if not part.get("description")] == []


def test_the_examples_of_the_repository_are_valid(repo: Path) -> None:
    found = sorted((repo / "examples").glob("*/switchboard.config.json"))
    assert found
    for path in found:
        jsonschema.validate(documents.read_document(str(path)), SCHEMA)
