from __future__ import annotations

import io
import sys

import pytest

from switchboard_mcp.app import CommandOptions
from switchboard_mcp.cli.commands.login import log_in
from switchboard_mcp.cli.console import Console
from switchboard_mcp.cli.index import parser_for
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.system.installation import current_installation


async def test_without_the_packages_for_remote_children_a_login_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "switchboard_mcp.transport.http.oauth", None)
    spec = ChildSpec(name="web", source="config", kind="http", url="https://web.example/mcp")
    invocation = Invocation(
        CommandOptions(), parser_for("login").parse(["web"]), Console(io.StringIO(), io.StringIO(), {})
    )
    with pytest.raises(SwitchboardError, match="Child 'web' is remote") as refused:
        await log_in(spec, invocation)
    assert current_installation().command("") in str(refused.value.failure.hint)
