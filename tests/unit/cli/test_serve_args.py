from __future__ import annotations

from switchboard_mcp.app import CommandOptions
from switchboard_mcp.cli.serve_args import parse
from switchboard_mcp.config.serve_flags import CHOICES
from switchboard_mcp.observability.log import LEVELS
from tests.cases import each_case


@each_case(
    ("arguments", "expected"),
    [
        ([], CommandOptions()),
        (["serve"], CommandOptions()),
        (["--workspace", "w"], CommandOptions(workspace="w")),
        (["serve", "--workspace=w", "--config", "c"], CommandOptions(workspace="w", config="c")),
        (
            ["--workspace", "w", "serve", "--log-level", "debug"],
            CommandOptions(workspace="w", log_level="debug"),
        ),
        (["--log-format", "json"], CommandOptions(log_style="json")),
        (["--workspace", "serve"], CommandOptions(workspace="serve")),
    ],
)
def test_plain_serving_is_understood_without_a_parser(arguments: list[str], expected: CommandOptions) -> None:
    assert parse(arguments) == expected


@each_case(
    "arguments",
    [
        ["list"],
        ["--help"],
        ["--version"],
        ["--dry-run"],
        ["serve", "--help"],
        ["serve", "serve"],
        ["--workspace"],
        ["--log-level", "loud"],
        ["--log-format=xml"],
        ["--workspace", "w", "list"],
    ],
)
def test_everything_else_is_left_to_the_commands(arguments: list[str]) -> None:
    assert parse(arguments) is None


def test_the_log_levels_are_those_of_the_log() -> None:
    assert CHOICES["log_level"] == tuple(LEVELS)
