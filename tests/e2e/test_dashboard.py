"""The dashboard in a real Chromium: every view, live, by mouse and by keyboard, and against hostile text."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows import engine
from tests.e2e.browser import Browser, browser, needs_browser
from tests.e2e.host import SWITCHBOARD
from tests.e2e.test_dashboard_api import AGENT, CHILDREN, ECHO, READER, api, call, make_workspace, seed_mail
from tests.e2e.test_dashboard_api import _lock as lock
from tests.e2e.web import Web, serving, start, stop
from tests.patience import PATIENCE_S

pytestmark = [needs_browser]

SHOTS = Path(__file__).resolve().parents[2] / "artifacts" / "screenshots"
# The full figure is 100,000; files of that number take a while to make.
MESSAGES = int(os.environ.get("SWITCHBOARD_DASHBOARD_MESSAGES", "10000"))
MANY_CHILDREN = 100
VIEWS = ("overview", "suites", "calls", "audit", "mail", "workflows", "approvals")
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>'
HOSTILE_TOOL = {
    "name": HOSTILE,
    "description": f'{HOSTILE} "></p><svg onload=window.hacked=3>',
    "inputSchema": {"type": "object"},
}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server with drift, an ill child, and mail, some of it hostile."""
    folder = make_workspace(tmp_path_factory.mktemp("dashboard") / "ws")
    file = folder / "switchboard.config.json"
    config = json.loads(file.read_text())
    config["mcpServers"]["evil"] = {"command": f"/no/{HOSTILE}", "description": HOSTILE}
    config["mcpServers"]["loud"] = {
        "command": sys.executable,
        "args": ["-c", f"raise SystemExit({HOSTILE!r})"],
    }
    file.write_text(json.dumps(config))
    seed_mail(folder)
    lock(folder)
    changed = {**ECHO, "description": f"Says it again. {HOSTILE}"}
    (folder / "offer.json").write_text(json.dumps({"tools": [changed, HOSTILE_TOOL]}))
    with serving(folder) as running:
        api(running, "children/pinned/start", {})
        for child in ("missing", "evil", "loud"):
            api(running, f"children/{child}/start", {})
        api(running, "mail/send", {"to": "ann", "payload": f"Hello {HOSTILE}"})
        yield running


@pytest.fixture(scope="module")
def page(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that came in by the link."""
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        opened.open(link_of(web))
        opened.sees("Tokens saved")
        yield opened


@pytest.fixture(autouse=True)
def _unhurt(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test: no script of anybody has run, nothing was refused by the policy, nothing has failed."""
    yield
    if "page" in request.fixturenames:
        shown: Browser = request.getfixturevalue("page")
        assert shown.run("return await page.evaluate(() => window.hacked ?? null)") is None
        assert shown.heard == []


async def begin_workflow(folder: Path) -> None:
    async with await MessageStore.open(str(folder), watch=False) as post:
        parts = {"giver": "ann", "taker": "ben"}
        await engine.start(post, "ann", "hand-off", agents=parts, subject=f"Hand over {HOSTILE}")


def link_of(web: Web) -> str:
    command = [*SWITCHBOARD, "dashboard", "--workspace", str(web.workspace)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return ran.stdout.strip()


def test_the_link_leaves_no_code_in_the_address_and_no_cookie_for_scripts(page: Browser) -> None:
    assert page.run("return page.url()").endswith("/")
    assert page.run("return await page.evaluate(() => document.cookie)") == ""
    cookies = page.run("return await context.cookies()")
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]


def test_the_overview_shows_sums_charts_and_what_needs_attention(page: Browser, web: Web) -> None:
    page.view("overview")
    call(web)
    page.run("await page.locator('svg.chart path.stroke').waitFor({state: 'attached'})")
    page.sees("calls per ")
    assert "call" in page.run("return await page.locator('svg.chart g title').first().textContent()")
    page.sees(
        "Install the program, or use its absolute path in the named file: hosts often have a short PATH."
    )
    page.sees("execute for builder")
    page.picture(SHOTS / "overview.png")


def test_suites_can_be_filtered_sorted_and_opened(page: Browser) -> None:
    page.view("suites")
    page.run("await page.fill('#search', 'missing')")
    page.run("await page.locator('tbody tr').nth(1).waitFor({state: 'detached'})")
    assert page.run("return await page.locator('tbody tr').count()") == 1
    page.run("await page.fill('#search', '')")
    page.run("await page.getByRole('button', {name: 'Calls'}).click()")
    assert page.run("return await page.locator('th[aria-sort=ascending]').innerText()").startswith("Calls")
    page.run("await page.click('tr[data-id=missing] button.link')")
    page.sees("command_not_found")
    page.picture(SHOTS / "suites.png")


def test_a_call_shows_up_without_a_reload_and_without_its_arguments(page: Browser, web: Web) -> None:
    page.view("calls")
    before = page.run("return await page.locator('.list-row').count()")
    call(web)
    call(web, HOSTILE)
    page.run("await page.locator('.list-row').nth(args.n).waitFor()", n=before + 1)
    text = page.text()
    assert "secret words" not in text
    assert HOSTILE[:20] in text
    page.picture(SHOTS / "calls.png")


def test_the_record_is_shown_and_searched(page: Browser) -> None:
    page.view("audit")
    page.sees("command_not_found")
    page.run("await page.fill('#search', 'missing')")
    page.run("await page.locator('.list-row', {hasText: 'pinned'}).first().waitFor({state: 'detached'})")
    page.run("await page.fill('#search', ''); await page.getByLabel('Outcome').selectOption('failed')")
    page.run("await page.locator('.list-row', {hasText: /ok$/}).first().waitFor({state: 'detached'})")
    assert "secret words" not in page.text()
    page.picture(SHOTS / "audit.png")


def test_a_message_is_read_with_its_thread_and_found_by_its_words(page: Browser) -> None:
    page.view("mail")
    beside = "badge.getBoundingClientRect().right < badge.closest('nav').getBoundingClientRect().right"
    badges = "[...document.querySelectorAll('.person .badge')]"
    page.run("await page.locator('.person .badge').first().waitFor()")
    assert page.run(f"return await page.evaluate(() => {badges}.every((badge) => {beside}))")
    page.run("await page.fill('#search', 'parser')")
    page.run("await page.locator('.list-row', {hasText: 'Make the parser quick.'}).click()")
    page.sees("Thread of 2")
    page.sees("It was read twice.")
    page.picture(SHOTS / "mail.png")
    page.run("await page.fill('#search', '')")


def test_a_message_is_sent_as_the_overseer_and_comes_up_in_the_list(page: Browser, web: Web) -> None:
    page.view("mail")
    page.run("await page.getByRole('button', {name: 'Write'}).click()")
    page.run("await page.getByLabel('To').selectOption('ben')")
    page.run("await page.getByRole('textbox', {name: 'Message'}).fill('From the person who watches.')")
    page.picture(SHOTS / "write.png")
    page.run("await page.getByRole('button', {name: 'Send'}).click()")
    page.run("await page.locator('.list-row', {hasText: 'From the person who watches.'}).waitFor()")
    sent = api(web, "mail/messages?agent=ben&sender=overseer").json["messages"]
    assert sent[0]["excerpt"] == "From the person who watches."


def test_an_agent_is_shown_with_its_icon_and_color(page: Browser) -> None:
    page.view("mail")
    page.sees("🔧")
    dot = "page.locator('.person', {hasText: 'ben'}).locator('.agent-color')"
    color = page.run(f"return await {dot}.evaluate((node) => getComputedStyle(node).backgroundColor)")
    assert color == "rgb(0, 255, 0)"


def test_news_from_others_come_up_by_themselves(page: Browser, web: Web) -> None:
    page.view("mail")
    api(web, "mail/send", {"to": "ann", "payload": "News from elsewhere."})
    page.run("await page.locator('.list-row', {hasText: 'News from elsewhere.'}).waitFor()")


def test_an_execute_is_approved_after_a_second_look(page: Browser, web: Web) -> None:
    page.view("mail")
    page.run("await page.getByLabel('Kind of message').selectOption('execute')")
    page.run("await page.locator('.list-row', {hasText: 'make release'}).click()")
    page.run("await page.getByRole('article').getByRole('button', {name: 'Approve'}).click()")
    page.run("await page.locator('dialog[open]').getByRole('button', {name: 'Approve'}).click()")
    page.sees("Approved, and sent.")
    sent = api(web, "mail/messages?agent=builder&sender=overseer&action=execute").json["messages"]
    assert [message["excerpt"] for message in sent] == ["make release"]


def test_a_workflow_shows_up_by_itself_with_the_phase_it_stands_in(page: Browser, web: Web) -> None:
    page.view("workflows")
    page.sees("No workflow is running.")
    asyncio.run(begin_workflow(web.workspace))
    page.sees(f"Hand over {HOSTILE}")
    assert page.run("return await page.locator('[aria-current=step]').innerText()") == "prepare ann"
    page.picture(SHOTS / "workflows.png")


def test_hostile_names_descriptions_and_messages_are_only_text(page: Browser) -> None:
    page.view("suites")
    page.run("await page.click('tr[data-id=pinned] button.link')")
    page.sees("differences from the lock")
    assert HOSTILE in page.text()
    page.picture(SHOTS / "drift.png")
    page.run("await page.click('tr[data-id=evil] button.link')")
    page.sees(f"command '/no/{HOSTILE}'")
    page.run("await page.click('tr[data-id=loud] button.link')")
    page.run("await page.locator('aside pre', {hasText: '<script>window.hacked=2'}).waitFor()")
    page.picture(SHOTS / "stderr.png")
    page.view("mail")
    page.run("await page.locator('.list-row', {hasText: 'Hello <img'}).click()")
    page.run("await page.locator('pre.payload', {hasText: 'Hello <img'}).waitFor()")
    assert page.run("return await page.locator('main img, main script').count()") == 0


def test_drift_is_approved_and_gone(page: Browser, web: Web) -> None:
    page.view("suites")
    page.run("await page.click('tr[data-id=pinned] button.link')")
    page.run("await page.getByRole('complementary').getByRole('button', {name: 'Approve'}).click()")
    page.run("await page.locator('dialog[open]').getByRole('button', {name: 'Approve'}).click()")
    page.sees("Approved and locked.")
    page.run("await page.locator('tr[data-id=pinned] .badge.warn').waitFor({state: 'detached'})")
    assert "drift" not in api(web, "children/pinned").json


def test_a_child_is_stopped_and_its_row_changes_by_itself(page: Browser) -> None:
    page.view("suites")
    page.run("await page.click('tr[data-id=pinned] button.link')")
    page.run("await page.getByRole('button', {name: 'Stop'}).click()")
    page.run("await page.locator('tr[data-id=pinned]', {hasText: 'stopped'}).waitFor()")


def test_everything_can_be_reached_by_keys(page: Browser) -> None:
    page.run("await page.locator('body').click({position: {x: 2, y: 400}})")
    page.run("await page.keyboard.press('5')")
    page.run("await page.locator('#views a[data-view=mail][aria-current]').waitFor()")
    page.run("await page.locator('.list-row').nth(1).waitFor()")
    page.run("await page.keyboard.press('Tab')")
    assert page.run("return await page.evaluate(() => document.activeElement.id)") == "search"
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.keyboard.press('/')")
    assert page.run("return await page.evaluate(() => document.activeElement.id)") == "search"
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.keyboard.press('j'); await page.keyboard.press('j')")
    assert (
        page.run("return await page.locator('.list-row[aria-selected=true]').getAttribute('aria-posinset')")
        == "2"
    )
    page.run("await page.keyboard.press('Enter')")
    page.run("await page.locator('article .payload').first().waitFor()")
    page.run("await page.keyboard.press('?')")
    page.sees("Dark or light")
    page.run("await page.keyboard.press('Escape')")


@pytest.mark.parametrize(
    ("view", "selected", "opened"),
    [
        ("suites", "tbody button.link:focus", "aside.detail:not([hidden]) dl"),
        ("calls", ".list:focus .list-row[aria-selected=true]", "dialog[open] dl"),
        ("audit", ".list:focus .list-row[aria-selected=true]", "dialog[open] dl"),
        ("mail", ".list:focus .list-row[aria-selected=true]", "article .payload"),
    ],
)
@pytest.mark.parametrize("keys", [("j", "k"), ("ArrowDown", "ArrowUp")])
def test_the_keys_of_the_help_work_in_every_list(
    page: Browser, web: Web, view: str, selected: str, opened: str, keys: tuple[str, str]
) -> None:
    call(web)
    call(web)
    page.run("await page.evaluate(() => document.activeElement.blur())")
    page.run("await page.keyboard.press(args.key)", key=str(VIEWS.index(view) + 1))
    page.run(
        "await page.locator(args.rows).nth(1).waitFor()", rows="tbody tr" if view == "suites" else ".list-row"
    )
    shown = "return await page.locator(args.selected).innerText()"
    down, up = keys
    page.run("await page.keyboard.press(args.key)", key=down)
    first = page.run(shown, selected=selected)
    rows = "[...document.querySelectorAll('tbody button.link, .list-row')]"
    index = f"(selected) => {rows}.indexOf(document.querySelector(selected))"
    where = f"return await page.evaluate({index}, args.selected)"
    at = page.run(where, selected=selected)
    assert at >= 0
    page.run("await page.keyboard.press(args.key)", key=down)
    # Calls that are still on their way to the page come in above.
    assert page.run(where, selected=selected) > at
    page.run("await page.keyboard.press(args.key)", key=up)
    assert page.run(shown, selected=selected) == first
    page.run("await page.keyboard.press('Enter')")
    page.run("await page.locator(args.opened).first().waitFor()", opened=opened)
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.locator(args.opened).first().waitFor({state: 'hidden'})", opened=opened)
    page.run("await page.keyboard.press('/')")
    assert page.run("return await page.evaluate(() => document.activeElement.id)") == "search"
    page.run("await page.keyboard.press('Escape')")


def test_a_disabled_child_is_shown_with_the_command_that_enables_it(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws")
    file = folder / "switchboard.config.json"
    config = json.loads(file.read_text())
    config["mcpServers"]["resting"] = {"command": "true", "disabled": True}
    file.write_text(json.dumps(config))
    with serving(folder) as web, browser(tmp_path / "profile") as page:
        page.open(link_of(web))
        page.sees("1 disabled")
        page.view("suites")
        page.run("await page.click('tr[data-id=resting] button.link')")
        page.sees("switchboard enable resting")
        assert (
            page.run("return await page.locator('aside').getByRole('button', {name: 'Start'}).count()") == 0
        )


def test_bars_are_counts_calls_name_their_client_and_savings_their_base_line(tmp_path: Path) -> None:
    with serving(make_workspace(tmp_path / "ws")) as web, browser(tmp_path / "profile") as page:
        session = web.initialize()
        for _ in range(3):
            arguments = {"action": "call", "subtool": "echo", "args": {"message": "x"}}
            session.result("tools/call", {"name": "pinned_suite", "arguments": arguments})
        page.open(link_of(web))
        page.sees("calls per ")
        page.sees("in 1 session with calls")
        page.sees(
            "Compared with listing every tool of these suites in each session that called something (1)"
        )
        page.run("await page.locator('.card.last li', {hasText: 'pinned · echo test'}).first().waitFor()")
        titles = "return await page.locator('svg.chart g title').allTextContents()"
        counts = [int(re.search(r"(\d+) calls?,", title)[1]) for title in page.run(titles)]  # type: ignore[index]
        assert sum(counts) == 3
        highest = page.run("return await page.locator('svg.chart text.tick').allTextContents()")
        assert highest[1] in ("1", "1.5", "2", "3")


def test_after_a_restart_the_page_dims_what_is_old_and_asks_for_a_login(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws")
    with serving(folder) as web, browser(tmp_path / "profile") as page:
        call(web)
        page.open(link_of(web))
        page.view("calls")
        page.run("await page.locator('.list-row').first().waitFor()")
        stop(web.process)
        page.run("await page.locator('main.stale').waitFor()")
        page.run("await page.locator('#line', {hasText: 'lost'}).waitFor()")
        assert page.run("return await page.locator('.list-row').count()") == 1
        with start(folder, f"127.0.0.1:{web.port}", log=web.log) as process:
            try:
                again = Web(process, folder, web.log)
                page.sees("The server has restarted")
                assert page.run("return await page.locator('.list-row').count()") == 0
                page.run("await page.fill('input[type=password]', args.token)", token=again.token)
                page.run("await page.keyboard.press('Enter')")
                page.sees("No calls yet")
                page.run("await page.locator('main:not(.stale)').waitFor()")
                call(again)
                page.run("await page.locator('.list-row').first().waitFor()")
            finally:
                stop(process)


def test_every_control_has_a_name_and_every_text_its_contrast(page: Browser) -> None:
    for theme in ("light", "dark"):
        page.run(
            "await page.evaluate((theme) => { document.documentElement.dataset.theme = theme }, args.t)",
            t=theme,
        )
        for view in ("overview", "suites", "calls", "audit", "mail", "workflows", "approvals"):
            page.view(view)
            page.run("await page.waitForTimeout(200)")
            assert page.run(f"return await page.evaluate(() => {NAMELESS})") == [], view
            assert page.run(f"return await page.evaluate(() => {FAINT})") == [], (theme, view)
    page.picture(SHOTS / "dark.png")
    page.run("await page.evaluate(() => { delete document.documentElement.dataset.theme })")


def test_a_phone_shows_every_view_without_scrolling_sideways(page: Browser) -> None:
    for view in ("overview", "suites", "calls", "audit", "mail", "workflows", "approvals"):
        page.view(view)
        page.picture(SHOTS / f"phone-{view}.png", 390, 844)
        wide = "return await page.evaluate(() => document.documentElement.scrollWidth)"
        assert page.run(wide) <= 390, view
    page.run("await page.setViewportSize({width: 1280, height: 860})")


def test_a_wrong_token_is_refused_a_right_one_let_in_and_one_that_may_look_sees_no_buttons(
    web: Web, tmp_path: Path
) -> None:
    with browser(tmp_path / "profile") as other:
        other.open(web.url)
        other.sees("Log in")
        other.picture(SHOTS / "login.png")
        for wrong in ("wrong", AGENT):
            other.run("await page.fill('input[type=password]', args.token)", token=wrong)
            other.run("await page.getByRole('button', {name: 'Log in'}).click()")
            other.sees("This token has no dashboard rights")
        other.run("await page.fill('input[type=password]', args.token)", token=READER)
        other.run("await page.keyboard.press('Enter')")
        other.sees("Tokens saved")
        other.view("mail")
        other.run("await page.locator('.list-row').first().waitFor()")
        assert other.run("return await page.getByRole('button', {name: 'Write'}).count()") == 0
        other.run("await page.click('#logout')")
        other.sees("Log in")
        other.run("await page.reload()")
        other.sees("Log in")


def test_a_hundred_children_and_very_many_messages_are_quick(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws", mcpServers=many_children(tmp_path))
    many_messages(folder, MESSAGES)
    with serving(folder) as web, browser(tmp_path / "profile") as page:
        page.open(link_of(web))
        page.sees("Tokens saved")
        began = time.perf_counter()
        page.run("await page.goto(args.url)", url=f"{web.url}/")
        page.run("await page.locator('.tile').first().waitFor()")
        first = page.run(FIRST_VIEW)
        wall = (time.perf_counter() - began) * 1000
        began = time.perf_counter()
        page.view("suites")
        page.run("await page.locator('tbody tr').nth(args.n).waitFor()", n=MANY_CHILDREN - 1)
        suites = (time.perf_counter() - began) * 1000
        began = time.perf_counter()
        page.view("mail")
        page.run("await page.locator('.list-row').first().waitFor()")
        mail = (time.perf_counter() - began) * 1000
        page.sees(f"{MESSAGES:,} messages")
        drawn = page.run("return await page.locator('.list-row').count()")
        assert drawn < 60  # of however many there are
        page.picture(SHOTS / "many.png")
        began = time.perf_counter()
        page.run("await page.fill('#search', 'needle')")
        page.run("await page.locator('.list-row', {hasText: 'needle'}).first().waitFor()")
        search = (time.perf_counter() - began) * 1000
        print(
            f"\n{MANY_CHILDREN} children, {MESSAGES:,} messages: first view {first:.0f} ms ({wall:.0f} ms with the "
            f"driver), suites {suites:.0f} ms, mail {mail:.0f} ms, a word in message 2,000 found in {search:.0f} ms"
        )
        assert page.heard == []


# Since the navigation began, until the tiles were there.
FIRST_VIEW = "return await page.evaluate(() => performance.getEntriesByName('shown')[0]?.startTime ?? 0)"

NAMELESS = """[...document.querySelectorAll('button, a, input, select, textarea')].filter((node) => {
  const label = node.getAttribute('aria-label') || node.innerText || node.closest('label')?.innerText || node.title;
  return node.offsetParent !== null && !label.trim();
}).map((node) => node.outerHTML.slice(0, 100))"""

FAINT = """(() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const linear = (c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (rgb) => rgb.slice(0, 3).map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (node) => {
    for (; node; node = node.parentElement) {
      const c = parse(getComputedStyle(node).backgroundColor);
      if (c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
  };
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || node.offsetParent === null || node.closest('svg, .hidden, dialog:not([open])')) continue;
    const a = light(parse(getComputedStyle(node).color)), b = light(back(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${node.className || node.tagName} ${node.innerText.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return [...new Set(bad)];
})()"""


def many_children(folder: Path) -> dict[str, object]:
    return {
        f"server-{number:03d}": {
            "command": sys.executable,
            "args": [str(CHILDREN / "pinned.py"), str(folder / "ws")],
            "description": f"Server number {number} of many.",
        }
        for number in range(MANY_CHILDREN)
    }


def many_messages(folder: Path, count: int) -> None:
    """Messages as they lie in archives, written as files: sending them would test the desk."""
    seed_mail(folder)
    base = 1_700_000_000_000_000
    for number in range(count - 3):
        agent = ("ann", "ben", "builder")[number % 3]
        place = folder / ".switchboard" / "archive" / agent
        if number < 3:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        word = "needle" if number == max(0, count - 2_000) else "hay"
        message = {
            "id": f"msg_{base + number}_{number:016x}",
            "action": "status_update",
            "sender": "ann",
            "recipient": agent,
            "payload": f"Number {number}: {word} in a heap.",
            "createdAt": "2026-01-01T00:00:00.000Z",
        }
        name = f"msg_{base + number}_{number:016x}.{1:016d}.done.json"
        (place / name).write_text(json.dumps(message))
