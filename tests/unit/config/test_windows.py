from __future__ import annotations

import pytest

from switchboard_mcp.config.models import Config, Workspace
from switchboard_mcp.config.sections import AuditSettings, GovernanceSettings, MailSettings
from switchboard_mcp.config.windows import refuse_what_is_missing
from switchboard_mcp.errors import SwitchboardError


def workspace(config: Config) -> Workspace:
    return Workspace(folder="/w", config=config, children=[], warnings=[], source="/w/c.json")


@pytest.mark.parametrize(
    ("config", "http", "told"),
    [
        (Config(mail=MailSettings(enabled=True)), False, "/w/c.json: mail.enabled"),
        (Config(audit=AuditSettings(enabled=True)), False, "/w/c.json: audit.enabled"),
        (
            Config(governance=GovernanceSettings(mode="governed")),
            False,
            "/w/c.json: governance.mode 'governed'",
        ),
        (Config(), True, "serve --http"),
    ],
)
def test_what_windows_lacks_is_refused_by_name(config: Config, http: bool, told: str) -> None:
    with pytest.raises(SwitchboardError) as refused:
        refuse_what_is_missing(workspace(config), http=http)
    assert refused.value.failure.message == f"{told}: not available on Windows yet."


def test_what_it_has_is_served() -> None:
    refuse_what_is_missing(workspace(Config()))
