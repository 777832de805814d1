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


class Browser:
    """One page of one browser."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._read()

    def run(self, code: str, **args: object) -> Any:
        """What this piece of JavaScript returns; `page`, `context`, `heard` and `args` are at hand."""
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
        found: str = self.run("return await page.innerText('body')")
        return found

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
        found: list[str] = self.run("return heard")
        return found

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
