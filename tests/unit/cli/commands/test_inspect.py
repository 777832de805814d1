from __future__ import annotations

from switchboard_mcp.cli.commands.inspect import command_of, parameters
from switchboard_mcp.cli.console import Styled
from switchboard_mcp.config.models import ChildSpec
from tests.cases import each_case


def test_each_parameter_has_its_type_and_meaning() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where"},
            "at": {"$ref": "#/$defs/Point"},
            "mode": {"enum": ["a", "b"]},
        },
        "required": ["path"],
        "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    assert list(parameters(schema)) == [
        (Styled("path", "cyan"), "string", "required", "Where"),
        (Styled("at", "cyan"), "{x?: number}", "", ""),
        (Styled("mode", "cyan"), '"a"|"b"', "", ""),
    ]


@each_case("schema", [None, [], {}, {"properties": []}, {"properties": {}, "required": 3}])
def test_a_schema_without_parameters_has_none(schema: object) -> None:
    assert list(parameters(schema)) == []


def test_secrets_in_a_command_are_masked() -> None:
    spec = ChildSpec(name="x", source="f", command="run", args=["--token", "ghp_" + "a1" * 18, "${VAR}"])
    command = command_of(spec)
    assert command[0] == "run"
    assert command[3] == "${VAR}"
    assert "a1a1" not in command[2]
