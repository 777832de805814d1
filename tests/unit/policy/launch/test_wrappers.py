"""Whether a model may plan the calls of a child: the approval, the settings and what the model is told, together."""

from __future__ import annotations

from pathlib import Path

from switchboard_mcp.config.files.approvals import Approval, AskApproval
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.policy.launch import wrappers
from tests.cases import each_case

ANTHROPIC = "https://api.anthropic.com:443"


@each_case(
    ("settings", "expected"),
    [
        (AskSettings(), ["host", ANTHROPIC]),
        (AskSettings(backend="host", base_url="https://x.example"), ["host"]),
        (AskSettings(backend="api"), [ANTHROPIC]),
        (AskSettings(backend="api", base_url="http://127.0.0.1:99/v1"), ["http://127.0.0.1:99"]),
    ],
)
def test_the_settings_say_who_plans(settings: AskSettings, expected: list[str]) -> None:
    assert wrappers.planners(settings) == expected


@each_case(
    ("models", "settings", "why"),
    [
        (None, AskSettings(), "its approval does not let a model plan"),
        (["host", ANTHROPIC], AskSettings(), ""),
        (["host"], AskSettings(backend="host"), ""),
        (["host"], AskSettings(), f"lets {ANTHROPIC} plan"),
        ([ANTHROPIC], AskSettings(backend="host"), "lets host plan"),
        (
            [ANTHROPIC],
            AskSettings(backend="api", base_url="https://evil.example"),
            "lets https://evil.example:443 plan",
        ),
        (
            ["host"],
            AskSettings(backend="host", base_url="http://plain.example"),
            "ask.baseUrl is not encrypted",
        ),
        (["host"], AskSettings(backend="host", base_url="https://me:pw@x.example"), "contains a user name"),
        (["host"], AskSettings(backend="host", confirm="never"), "ask.confirm"),
        (["host"], AskSettings(backend="host", confirm="writes"), ""),
        (["host"], AskSettings(backend="host", trust={"kid": ["get_*"], "other": ["*"]}), ""),
        (["host"], AskSettings(backend="host", trust={"kid": ["*"]}), "ask.trust.kid names *"),
        (["host"], AskSettings(backend="host", passthrough=True), "ask.passthrough"),
    ],
)
def test_sentences_need_an_approval_of_who_plans(
    tmp_path: Path, models: list[str] | None, settings: AskSettings, why: str
) -> None:
    approval = Approval(ask=None if models is None else AskApproval(models=models, trust=["get_*"]))
    found = wrappers.find_flaw("kid", approval, settings, str(tmp_path))
    assert why in found
    assert bool(found) == bool(why)


def test_the_text_for_the_model_is_the_approved_one(tmp_path: Path) -> None:
    settings, folder = AskSettings(backend="host"), str(tmp_path)
    without = Approval(ask=wrappers.propose_ask("kid", settings, folder))
    (tmp_path / "CLAUDE.md").write_text("Be kind.")
    kind = Approval(ask=wrappers.propose_ask("kid", settings, folder))
    assert "is not what was approved" in wrappers.find_flaw("kid", without, settings, folder)
    assert wrappers.find_flaw("kid", kind, settings, folder) == ""
    (tmp_path / "CLAUDE.md").write_text("Be cruel.")
    assert "is not what was approved" in wrappers.find_flaw("kid", kind, settings, folder)
    (tmp_path / "CLAUDE.md").unlink()
    (tmp_path / "CLAUDE.md").mkdir()
    assert wrappers.find_flaw("kid", kind, settings, folder)


def test_the_address_of_the_api_is_never_left_to_the_environment() -> None:
    assert wrappers.governed(AskSettings()).base_url == "https://api.anthropic.com"
    assert wrappers.governed(AskSettings(base_url="https://x.example")).base_url == "https://x.example"


def test_asking_less_than_was_approved_is_refused(tmp_path: Path) -> None:
    strict = Approval(
        ask=wrappers.propose_ask("kid", AskSettings(backend="host", confirm="writes"), str(tmp_path))
    )
    assert "ask.confirm is `destructive`" in wrappers.find_flaw(
        "kid", strict, AskSettings(backend="host"), str(tmp_path)
    )
