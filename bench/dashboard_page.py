"""Scenario: the cost of an open dashboard in a real Chromium: first paint, list of calls, page under load.

A server with 200 children and 50 sessions gets 500 calls a second while the page shows them. Owns the load and what is
read from the browser; the page's processor time is that of its renderer process.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.contestants import make_workspace
from bench.over_http import SESSION, HttpClient, free_port, switchboard
from bench.processes import Process, descendants, read
from bench.report import Goal, Options, Report, Table, cell
from tests.e2e.browser import Browser, browser

CHILDREN, SESSIONS, RATE = 200, 50, 500
BATCHES_PER_S = 25
VIEWS = ("overview", "calls", "children")

# Times are the best of some attempts: a loaded machine only ever makes them longer.
ATTEMPTS = 5
FIRST_PAINT = """
await page.goto(args.url); await page.reload();
await page.waitForFunction(() => performance.getEntriesByName('shown').length);
return await page.evaluate(() => [
  performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,
  performance.getEntriesByName('shown')[0].startTime,
])"""
# To the end first, so that all pages of it are there.
FILL = """
await page.evaluate(() => { location.hash = 'calls' });
await page.locator('.list-row').nth(10).waitFor();
await page.waitForFunction(() => {
  const list = document.querySelector('.list');
  list.scrollTop = list.scrollHeight;
  return list.getAttribute('aria-rowcount') !== '-1';
}, null, { polling: 50 });
return await page.evaluate(() => Number(document.querySelector('.list').getAttribute('aria-rowcount')))"""
# A step of nearly a screen in every frame, from the newest call to the oldest.
SCROLL = """
return await page.evaluate(async () => {
  const list = document.querySelector('.list'), took = [];
  for (let place = 0; place < list.scrollHeight; place += 600) {
    await new Promise(requestAnimationFrame);
    const began = performance.now();
    list.scrollTop = place;
    list.dispatchEvent(new Event('scroll'));
    list.getBoundingClientRect();
    took.push(performance.now() - began);
  }
  took.sort((a, b) => a - b);
  const drawn = document.querySelectorAll('.list-row').length;
  list.scrollTop = 0;
  return [drawn, took[Math.floor(took.length / 2)], took[Math.floor(took.length * 0.95)]];
})"""


def renderers(page: Browser) -> list[Process]:
    # Chromium writes its arguments into one string.
    return [
        process
        for process in descendants(page.pid)
        if "--type=renderer" in read(f"/proc/{process.pid}/cmdline")
    ]


def load(client: HttpClient, seconds: float) -> int:
    """Make RATE calls per second, evenly spaced. Return how many were made."""
    client.connections.renew()
    made, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        due = min(int(elapsed * RATE) - made, RATE)
        if due > 0:
            client.connections.many(client.prepare(due), 10.0)
            made += due
        time.sleep(1 / BATCHES_PER_S)
    return made


def run(options: Options) -> Report:
    seconds = options.pick(15, 5)
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        workspace = make_workspace(Path(scratch) / "ws", CHILDREN)
        port = free_port()
        server = switchboard(workspace, port)
        server.start()
        try:
            # Each makes some two hundred calls, so that the list is full; its session stays.
            for _ in range(SESSIONS - 1):
                HttpClient(server, SESSION).connections.close()
            client = HttpClient(server, SESSION)
            token = server.headers["Authorization"].removeprefix("Bearer ")
            with browser(Path(scratch) / "profile") as page:
                page.open(f"http://127.0.0.1:{port}/")
                page.run("await page.fill('input[type=password]', args.token)", token=token)
                page.run("await page.keyboard.press('Enter'); await page.locator('.tile').first().waitFor()")
                measure(page, client, f"http://127.0.0.1:{port}/", seconds, report)
        finally:
            server.stop()
    return report


def measure(page: Browser, client: HttpClient, url: str, seconds: float, report: Report) -> None:
    paints = [page.run(FIRST_PAINT, url=url) for _ in range(ATTEMPTS)]
    paint, shown = min(each[0] for each in paints), min(each[1] for each in paints)
    rows = page.run(FILL)
    drawn, step, longest = min((page.run(SCROLL) for _ in range(ATTEMPTS)), key=lambda each: each[1])
    report.tables.append(
        Table(
            f"The page with {CHILDREN} children and {SESSIONS} sessions, in Chromium",
            ["", "ms"],
            [
                ["first contentful paint", cell(paint, 0)],
                ["first view complete", cell(shown, 0)],
                [f"a step in the list of {rows:,} calls, {drawn} in the page: median", cell(step, 1)],
                ["the same, p95", cell(longest, 1)],
            ],
        )
    )
    usage: list[list[str]] = []
    worst = 0.0
    for view in VIEWS:
        page.view(view)
        load(client, 1.0)
        before = {process.pid: process.cpu_ns() for process in renderers(page)}
        began = time.perf_counter()
        made = load(client, seconds)
        elapsed = time.perf_counter() - began
        used = sum(process.cpu_ns() - before.get(process.pid, 0) for process in renderers(page)) / 1e9
        share = 100 * used / elapsed
        worst = max(worst, share)
        usage.append([view, cell(made / elapsed, 0), cell(share, 1)])
    report.tables.append(Table("The page under load", ["view", "calls/s", "% of a core"], usage))
    report.figures["page"] = {"paint_ms": paint, "shown_ms": shown, "step_ms": step, "cpu_percent": worst}
    report.goals += [
        Goal("first paint on loopback", paint, "at most", 200, "ms"),
        Goal("a step in the list of calls", step, "at most", 16, "ms"),
        Goal(f"the page at {RATE} calls/s, of a core", worst, "at most", 20, "%"),
    ]
