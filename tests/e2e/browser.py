"""A real Chromium as a test sees it: pieces of Playwright's JavaScript, run one after the other."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent.parent / "browser"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""
NODE = shutil.which("node") or ""

needs_browser = pytest.mark.skipif(
    not (CHROMIUM and NODE and (HERE / "node_modules" / "playwright-core").is_dir()),
    reason="needs Chromium and Playwright: scripts/setup browser",
)
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: scripts/setup browser")
# Everything that WCAG 2.2 AA asks for and a program can check, and what axe calls best practice.
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Browser:
    """One page of one browser."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._read()

    @property
    def pid(self) -> int:
        """The process that drives the browser."""
        return self._process.pid

    def run(self, code: str, **args: object) -> Any:
        """Run JavaScript with `page`, `context`, `heard` and `args` in scope; return its value."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"code": code, "args": args}) + "\n")
        self._process.stdin.flush()
        result = self._read()
        assert "problem" not in result, result["problem"]
        return result.get("value")

    def open(self, url: str) -> None:
        self.run("await page.goto(args.url)", url=url)

    def view(self, name: str) -> None:
        """Go to a view by its link, and wait until it is there."""
        self.run(
            "for (const box of await page.locator('dialog[open]').all()) await box.evaluate((node) => node.remove());"
            "await page.click(`#views a[data-view=${args.name}]`);"
            "await page.waitForSelector(`#views a[data-view=${args.name}][aria-current]`)",
            name=name,
        )

    def sees(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.run("await page.getByText(args.text).first().waitFor()", text=text)

    def text(self) -> str:
        value: str = self.run("return await page.innerText('body')")
        return value

    def go(self, hash: str) -> None:
        """Go to an address of the page, such as `calls/7`."""
        self.run("await page.evaluate((hash) => { location.hash = hash }, args.hash)", hash=hash)

    def violations(self, *rules: str) -> list[str]:
        """Return what axe-core finds on the page, by these rules only if there are any."""
        value: list[str] = self.run(
            "if (!await page.evaluate(() => 'axe' in window)) {"
            "  const { readFileSync } = await import('node:fs');"
            "  await page.evaluate(readFileSync(args.axe, 'utf8'));"
            "}"
            "return await page.evaluate(async (only) => {"
            "  const { violations } = await axe.run(document, { runOnly: only, resultTypes: ['violations'] });"
            "  const why = (node) => node.any.concat(node.all).map((each) => each.message).join(', ');"
            "  const place = (node) => node.target.join(' ');"
            "  const line = (rule, node) => `${rule.id}: ${place(node)} ${why(node)}`;"
            "  return violations.flatMap((rule) => rule.nodes.map((node) => line(rule, node)));"
            "}, args.only)",
            axe=str(AXE),
            only={"type": "rule", "values": rules} if rules else {"type": "tag", "values": AXE_TAGS},
        )
        return value

    def picture(self, path: Path, width: int = 1280, height: int = 860) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.run(
            "await page.setViewportSize({width: args.width, height: args.height});"
            "await page.waitForTimeout(150); await page.screenshot({path: args.path});",
            path=str(path),
            width=width,
            height=height,
        )

    @property
    def heard(self) -> list[str]:
        """Errors and dialogs so far."""
        value: list[str] = self.run("return heard")
        return value

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the browser has gone"
        return json.loads(line)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, gone at the end."""
    command = [NODE, str(HERE / "drive.mjs"), str(profile), CHROMIUM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
    ) as process:
        try:
            yield Browser(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
