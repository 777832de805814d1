"""MCP Apps in a real Chromium: the official client and host bridge, and a published server, behind suites."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browser import HERE, NODE, Browser, browser, needs_browser
from tests.e2e.web import serving
from tests.e2e.workspaces import add_child, configure

APPS = HERE / "apps"
EXAMPLE = APPS / "node_modules" / "@modelcontextprotocol" / "server-basic-vanillajs" / "dist" / "index.js"

pytestmark = [
    needs_browser,
    pytest.mark.skipif(not EXAMPLE.exists(), reason="needs the packages of MCP Apps: scripts/setup browser"),
]


def open_host(page: Browser, origin: str, token: str) -> None:
    """Open the host's page at the gateway's own address, which lets it connect, and connect it."""
    page.run(
        "const fs = await import('node:fs'); const path = await import('node:path');"
        "await context.route('**/apps/**', async (route) => {"
        " const file = path.join(args.folder, new URL(route.request().url()).pathname.slice('/apps/'.length));"
        " const contentType = file.endsWith('.html') ? 'text/html' : 'text/javascript';"
        " await route.fulfill({contentType, body: fs.readFileSync(file, 'utf8')}); });"
        "await page.goto(args.origin + '/apps/host.html');"
        "await page.waitForFunction(() => window.ready);"
        "await page.evaluate((token) => window.connect(token), args.token)",
        folder=str(APPS),
        origin=origin,
        token=token,
    )


def evaluate(page: Browser, function: str, *args: object) -> Any:
    """Call a function of the host's page."""
    return page.run(
        "return await page.evaluate(([name, args]) => window[name](...args), args.call)",
        call=[function, args],
    )


def click(page: Browser, frame: str, button: str, shown: str, pattern: str) -> str:
    """Click a button of an app, and wait until its page shows a text."""
    found: str = page.run(
        "const shown = page.frameLocator(`iframe[name='${args.frame}']`);"
        "await shown.locator(args.button).click();"
        "const text = shown.locator(args.shown).filter({hasText: new RegExp(args.pattern)});"
        "await text.waitFor(); return await text.textContent()",
        frame=frame,
        button=button,
        shown=shown,
        pattern=pattern,
    )
    return found


def test_apps_of_two_suites_with_the_same_uri_run_side_by_side(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    add_child(workspace, "clock", [NODE, str(EXAMPLE), "--stdio"])
    add_child(workspace, "weather", [NODE, str(APPS / "weather.mjs")])
    configure(workspace, {})
    with serving(workspace) as web, browser(tmp_path / "profile") as page:
        open_host(page, web.url, web.token)
        for suite in ("clock_suite", "weather_suite"):
            evaluate(page, "call", suite, {"action": "introspect"})
        listed = {tool["name"]: tool.get("_meta", {}).get("ui") for tool in evaluate(page, "tools")}
        assert listed == {
            "clock_suite": None,
            "weather_suite": None,
            "get-time": {"resourceUri": "ui://clock/get-time/mcp-app.html"},
            "get-weather": {"resourceUri": "ui://weather/get-time/mcp-app.html"},
            "ask-weather": {"visibility": ["app"]},
        }

        clock, weather = (evaluate(page, "show", tool) for tool in ("get-time", "get-weather"))
        assert clock["page"] == clock["uri"] == "ui://clock/get-time/mcp-app.html"
        assert clock["bytes"] == len((EXAMPLE.parent / "mcp-app.html").read_text(encoding="utf-8"))
        assert weather["page"] == weather["uri"] == "ui://weather/get-time/mcp-app.html"

        first = page.run(
            "return await page.frameLocator('iframe[name=get-time]').locator('#server-time').textContent()"
        )
        again = click(page, "get-time", "#get-time-btn", "#server-time", f"^(?!{re.escape(first)}).*T.*Z")
        assert again > first
        assert click(page, "get-weather", "#ask", "#weather", "rain") == "rain"
        assert page.heard == []
