from __future__ import annotations

import asyncio
import io
import sys
from urllib.parse import urlsplit

import pytest

from switchboard_mcp.app import CommandOptions
from switchboard_mcp.cli.commands.login import callback_server, log_in
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


async def test_a_request_of_another_page_does_not_end_a_login() -> None:
    console = Console(io.StringIO(), io.StringIO(), {})
    async with callback_server(0, console, browser=False) as callback:
        prompt = callback.authorizer()

        async def visit(query: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(prompt.redirect_uri).port)
            writer.write(f"GET /callback?{query} HTTP/1.1\r\n\r\n".encode())
            response = await reader.read()
            writer.close()
            return response

        assert b" 400 " in await visit("error=too_early")
        await prompt.open_url("https://as.example/authorize?state=right")
        for forged in ("code=x", "code=x&state=wrong", "error=access_denied&state="):
            assert b" 400 " in await visit(forged)
        assert b"refused: %s" % b"no" in await visit("error=no&state=right&iss=y")
        assert await prompt.wait_for_callback() == {"error": "no", "state": "right", "iss": "y"}
