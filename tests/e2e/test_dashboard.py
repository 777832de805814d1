"""The dashboard in a real Chromium: every view, live, by mouse and by keyboard, and against hostile text."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows import engine
from tests.cases import each_case
from tests.e2e.browser import Browser, browser, needs_axe, needs_browser
from tests.e2e.host import SWITCHBOARD
from tests.e2e.test_dashboard_api import AGENT, CHILDREN, ECHO, READER, api, call, make_workspace, seed_mail
from tests.e2e.test_dashboard_api import _lock as lock
from tests.e2e.test_dashboard_detail import eventually, seed_more_mail
from tests.e2e.web import Web, serving, start, stop
from tests.patience import PATIENCE_S

pytestmark = [needs_browser]

SHOTS = Path(__file__).resolve().parents[2] / "artifacts" / "screenshots"
# The full figure is 100,000; files of that number take a while to make.
MESSAGES = int(os.environ.get("SWITCHBOARD_DASHBOARD_MESSAGES", "10000"))
MANY_CHILDREN = 100
VIEWS = ("overview", "calls", "sessions", "children", "approvals", "mail", "workflows", "audit")
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
    config["programs"] = {"enabled": True}
    config["mcpServers"]["spare"] = {"command": "true"}
    config["mcpServers"]["resting"] = {"command": "true", "disabled": True}
    file.write_text(json.dumps(config))
    seed_mail(folder)
    seed_more_mail(folder)
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
        # A page of something that is gone logs its 404.
        assert [text for text in shown.heard if "404" not in text] == []


async def begin_workflow(folder: Path) -> None:
    async with await MessageStore.open(str(folder), watch=False) as post:
        for name in ("cyd", "dan"):
            await post.register(name)
            await post.update(agent_registry.register(name, interface="test"))
        parts = {"giver": "cyd", "taker": "dan"}
        await engine.start(post, "cyd", "hand-off", agents=parts, subject=f"Hand over {HOSTILE}")


def link_of(web: Web) -> str:
    command = [*SWITCHBOARD, "dashboard", "--workspace", str(web.workspace)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return ran.stdout.strip()


def test_the_link_leaves_no_code_in_the_address_and_no_cookie_for_scripts(page: Browser) -> None:
    assert page.run("return page.url()").endswith("/")
    assert page.run("return await page.evaluate(() => document.cookie)") == ""
    cookies = page.run("return await context.cookies()")
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]


def test_a_cookie_that_another_port_of_this_machine_received_opens_nothing(web: Web, tmp_path: Path) -> None:
    received: list[str] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Neighbour) as server, browser(tmp_path) as opened:
        Thread(target=server.serve_forever, daemon=True).start()
        opened.open(link_of(web))
        opened.sees("Tokens saved")
        opened.open(f"http://127.0.0.1:{server.server_address[1]}/")
        server.shutdown()
    cookie = next(filter(None, received))
    assert cookie.startswith("switchboard_"), "browsers send it to every port"
    stolen = {"Authorization": None, "Cookie": cookie}
    for path in ("/api/overview", "/events", "/events?key=", "/api/calls"):
        assert web.ask("GET", path, None, stolen).status == 401


def test_the_overview_shows_what_needs_attention_figures_and_charts(page: Browser, web: Web) -> None:
    page.view("overview")
    call(web)
    page.run("await page.locator('svg.chart path.stroke').first().waitFor({state: 'attached'})")
    page.sees("Needs attention")
    page.sees(
        "Install the program, or use its absolute path in the named file: hosts often have a short PATH."
    )
    page.sees("execute for builder")
    page.sees("1 disabled")
    page.run("await page.getByRole('button', {name: '30 d'}).click()")
    page.run("await page.waitForFunction(() => location.hash === '#overview?range=30d')")
    saved = "await page.locator('.savings .card-head', {hasText: args.span}).waitFor()"
    page.run(saved, span="in 30 d")
    page.run("await page.getByRole('button', {name: '5 min'}).click()")
    page.run("await page.locator('.savings .chart path.stroke').waitFor({state: 'attached'})")
    page.run("await page.locator('.chart-box').first().hover({position: {x: 300, y: 50}})")
    page.picture(SHOTS / "overview.png")


def test_children_are_filtered_sorted_and_have_pages_with_addresses(page: Browser) -> None:
    page.view("children")
    page.run("await page.fill('#search', 'missing')")
    page.run("await page.locator('tbody tr').nth(1).waitFor({state: 'detached'})")
    assert page.run("return await page.locator('tbody tr').count()") == 1
    assert page.run("return page.url()").endswith("#children?q=missing")
    page.run("await page.fill('#search', '')")
    page.run("await page.getByRole('button', {name: 'Calls', exact: true}).click()")
    assert page.run("return await page.locator('th[aria-sort=ascending]').innerText()").startswith("Calls")
    page.run("await page.click('tr[data-id=missing] a')")
    page.sees("command_not_found")
    assert page.run("return page.url()").endswith("#children/missing")
    page.picture(SHOTS / "child.png")
    page.go("suites/resting")  # the address of before
    page.sees("switchboard enable resting")
    assert page.run("return await page.locator('main').getByRole('button', {name: 'Start'}).count()") == 0


def test_a_call_shows_up_without_a_reload_and_without_its_arguments(page: Browser, web: Web) -> None:
    page.view("calls")
    call(web)
    call(web, HOSTILE)
    page.run("await page.locator('.list-row', {hasText: '<img'}).first().waitFor()")
    assert "secret words" not in page.text()
    page.picture(SHOTS / "calls.png")


def test_filters_of_calls_are_in_the_address_and_work_after_a_reload(page: Browser, web: Web) -> None:
    page.view("calls")
    call(web)
    call(web, "no_such_subtool")
    page.run("await page.locator('.list-row', {hasText: 'no_such_subtool'}).first().waitFor()")
    page.run("await page.fill('#search', 'no_such')")
    page.run("await page.waitForFunction(() => location.hash === '#calls?q=no_such')")
    page.run("await page.locator('.list-row', {hasText: /echo/}).first().waitFor({state: 'detached'})")
    page.run("await page.reload()")
    page.run("await page.locator('.list-row', {hasText: 'no_such_subtool'}).first().waitFor()")
    assert page.run("return await page.locator('.list-row', {hasText: /echo/}).count()") == 0
    page.go("calls?outcome=failed&child=pinned")
    page.run("await page.locator('.list-row', {hasText: 'no_such_subtool'}).first().waitFor()")
    assert page.run("return await page.getByLabel('Outcome').inputValue()") == "failed"
    assert page.run("return await page.locator('.list-row', {hasText: /ok$/}).count()") == 0
    page.run("await page.keyboard.press('p')")
    page.sees("0 calls held")
    call(web, "no_such_subtool")
    page.sees("1 call held")
    page.run("await page.keyboard.press('p')")


def test_a_call_has_a_page_with_its_arguments_result_and_a_command_that_repeats_it(
    page: Browser, web: Web
) -> None:
    page.go("calls?child=pinned&outcome=ok")
    for _ in range(2):
        call(web)
    page.run("await page.locator('.list-row').nth(1).waitFor()")
    page.run("await page.locator('.list-row').first().click()")
    page.sees("Timings")
    page.run("await page.locator('.json', {hasText: 'secret words'}).first().waitFor()")
    page.run("await page.getByLabel('Search in arguments').fill('SECRET')")
    page.run("await page.locator('.json mark', {hasText: 'secret'}).first().waitFor()")
    page.run("await context.grantPermissions(['clipboard-read', 'clipboard-write'])")
    page.run("await page.getByRole('button', {name: 'Copy as switchboard call'}).click()")
    copied = page.run("return await page.evaluate(() => navigator.clipboard.readText())")
    assert copied.startswith("switchboard call pinned echo")
    assert "secret words" in copied
    page.picture(SHOTS / "call.png")
    here = page.run("return page.url()")
    page.run("await page.locator('h2').click(); await page.keyboard.press(']')")
    page.run("await page.waitForFunction((url) => location.href !== url, args.url)", url=here)
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.locator('.list-row').first().waitFor()")
    assert "child=pinned" in page.run("return page.url()")


def test_waterfall_latency_and_errors_of_calls_are_shown(page: Browser, web: Web) -> None:
    call(web)
    call(web, "no_such_subtool")
    page.go("calls/waterfall")
    page.run("await page.locator('a.water-row', {hasText: 'echo'}).first().waitFor()")
    page.picture(SHOTS / "waterfall.png")
    page.go("calls/latency")
    page.run("await page.locator('tr', {hasText: 'pinned echo'}).locator('.histogram').waitFor()")
    page.picture(SHOTS / "latency.png")
    page.go("calls/errors")
    page.run("await page.locator('.callout', {hasText: 'pinned'}).locator('.remedy').first().waitFor()")
    page.run(
        "await page.locator('.callout', {hasText: 'pinned'}).locator('a', {hasText: 'call '}).first().click()"
    )
    page.sees("Timings")


def test_sessions_are_listed_and_opened(page: Browser, web: Web) -> None:
    session = web.initialize()
    arguments = {"action": "call", "subtool": "echo", "args": {"message": "x"}}
    session.result("tools/call", {"name": "pinned_suite", "arguments": arguments})
    page.view("sessions")
    page.run("await page.locator('tbody tr a', {hasText: 'test 1'}).first().click()")
    page.sees("Children it used")
    page.picture(SHOTS / "session.png")
    other = web.initialize()
    other.result("tools/call", {"name": "pinned_suite", "arguments": {"action": "introspect"}})
    page.run("await page.getByRole('link', {name: 'Calls of this session'}).click()")
    page.run("await page.waitForFunction(() => /^#calls.session=s\\d+$/.test(location.hash))")
    page.run("await page.locator('.list-row', {hasText: 'echo'}).first().waitFor()")
    assert page.run("return await page.locator('.list-row').count()") == 1
    page.run("await page.getByRole('button', {name: 'Remove the filter session'}).click()")
    page.run("await page.locator('.list-row').nth(1).waitFor()")


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
    page.picture(SHOTS / "message.png")
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.locator('.list-row').nth(1).waitFor()")


def test_a_search_that_comes_due_after_a_message_was_opened_does_not_change_its_address(
    page: Browser,
) -> None:
    page.view("mail")
    page.run("await page.locator('.list-row', {hasText: 'Make the parser quick.'}).first().waitFor()")
    # The box is moved out of the view, as if the page were drawn after the search has come due. Timers fire in order.
    page.run(
        "await page.evaluate(() => {"
        "  const box = document.getElementById('search');"
        "  const row = [...document.querySelectorAll('.list-row')].find((each) => each.innerText.includes('parser'));"
        "  document.body.append(box);"
        "  box.value = 'parser'; box.dispatchEvent(new Event('input'));"
        "  row.click();"
        "  return new Promise((searched) => setTimeout(searched, 250)).then(() => box.remove());"
        "})"
    )
    page.sees("Thread of 2")
    assert "#mail/" in page.run("return page.url()")


def test_a_message_is_sent_as_the_overseer_and_comes_up_in_list_and_threads(page: Browser, web: Web) -> None:
    page.view("mail")
    page.run("await page.getByRole('button', {name: 'Write'}).click()")
    page.run("await page.getByLabel('To', {exact: true}).selectOption('ben')")
    page.run("await page.getByLabel('Priority').selectOption('high')")
    page.run("await page.getByLabel('Answer due').fill('2031-01-01T10:00')")
    page.run("await page.getByLabel('Subject').fill(`A subject ${args.text}`)", text=HOSTILE)
    page.run("await page.getByRole('textbox', {name: 'Message'}).fill('From the person who watches.')")
    page.picture(SHOTS / "write.png")
    page.run("await page.getByRole('button', {name: 'Send'}).click()")
    page.run("await page.locator('.list-row', {hasText: 'From the person who watches.'}).waitFor()")
    sent = api(web, "mail/messages?agent=ben&sender=overseer").json["messages"]
    assert sent[0]["excerpt"] == "From the person who watches."
    assert sent[0]["deadline"].startswith("2031-01-01")
    page.go("mail?tab=threads")
    page.run("await page.locator('.list-row', {hasText: 'A subject <img'}).click()")
    page.sees("due 2031-01-01")
    page.run("await page.getByRole('button', {name: 'Reply'}).click()")
    subject = page.run("return await page.getByLabel('Subject').inputValue()")
    assert subject == f"Re: A subject {HOSTILE}"
    page.run("await page.getByRole('button', {name: 'Cancel'}).click()")


def test_attachments_dead_letters_and_artifacts_are_shown_and_a_dead_letter_is_delivered_again(
    page: Browser, web: Web
) -> None:
    page.view("mail")
    page.run("await page.locator('.list-row', {hasText: 'See the file.'}).click()")
    page.run("await page.getByRole('button', {name: 'Preview'}).click()")
    page.run("await page.getByRole('region', {name: 'notes.txt'}).getByText('hello there').waitFor()")
    page.go("mail?tab=dead")
    page.sees("It cannot be read.")
    page.picture(SHOTS / "dead.png")
    page.run("await page.getByRole('button', {name: 'Deliver again'}).click()")
    page.sees("There are no dead letters.")
    assert api(web, "mail/dead").json["total"] == 0
    page.view("workflows")
    page.run("await page.locator('.card', {hasText: 'planning'}).getByRole('link').first().click()")
    page.run("await page.locator('summary', {hasText: 'plan.md'}).click()")
    page.sees("# The plan")
    page.picture(SHOTS / "workflow.png")


def test_an_agent_is_shown_with_its_icon_and_color(page: Browser) -> None:
    page.view("mail")
    page.sees("🔧")
    dot = "page.locator('.person', {hasText: 'ben'}).locator('.agent-color')"
    # The list may be drawn anew between finding the dot and reading its style.
    read = f"return await {dot}.evaluate((node) => getComputedStyle(node).backgroundColor)"
    assert eventually(lambda: page.run(read)) == "rgb(0, 255, 0)"
    page.go("mail?tab=agents")
    page.run("await page.locator('td', {hasText: 'ben'}).first().waitFor()")


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
    asyncio.run(begin_workflow(web.workspace))
    page.run("await page.getByRole('link', {name: `Hand over ${args.text}`}).waitFor()", text=HOSTILE)
    step = "page.locator('.card', {hasText: 'Hand over'}).locator('[aria-current=step]')"
    assert page.run(f"return await {step}.innerText()") == "prepare\ncyd"
    page.run("await page.getByRole('link', {name: /Hand over/}).click()")
    page.sees("Timeline")
    page.sees("waits for cyd")


def test_a_call_that_waits_is_allowed_in_the_inbox_and_goes_on(page: Browser, web: Web) -> None:
    page.view("approvals")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, web, "echo", "ask me first")
        page.run("await page.locator('[data-approval]', {hasText: 'ask me first'}).waitFor()")
        page.run("await page.locator('#views [data-view=approvals] .badge').waitFor()")
        page.picture(SHOTS / "approvals.png")
        card = "page.locator('[data-approval]', {hasText: 'ask me first'})"
        page.run(f"await {card}.getByRole('button', {{name: 'Allow'}}).click()")
        assert not waiting.result(PATIENCE_S).json["result"].get("isError")
    page.run("await page.locator('[data-approval]', {hasText: 'ask me first'}).waitFor({state: 'detached'})")
    page.run("await page.locator('[data-approval]', {hasText: 'Drift'}).first().waitFor()")


def test_a_program_that_waits_is_shown_with_its_code_and_runs_once_allowed(page: Browser, web: Web) -> None:
    pytest.importorskip("pydantic_monty", reason="needs the extra programs")
    code = f"import pinned\nasked = {HOSTILE!r}\nanswer = await pinned.echo(message='by a program')\n'ran to its end'"
    arguments = {"action": "call", "subtool": "run", "args": {"code": code}}
    session = web.initialize()
    page.view("approvals")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.result, "tools/call", {"name": "program_suite", "arguments": arguments})
        card = "page.locator('[data-approval]', {hasText: 'wants to run a program'})"
        page.run(f"await {card}.getByText('Program', {{exact: true}}).waitFor()")
        shown = page.run(
            f"return await {card}.getByRole('region', {{name: 'Code of the program'}}).innerText()"
        )
        assert shown.strip() == code
        assert "pinned.echo" in page.run(f"return await {card}.innerText()")
        page.picture(SHOTS / "program.png")
        page.run(f"await {card}.getByRole('button', {{name: 'Allow'}}).click()")
        page.run("await page.locator('dialog[open]').getByRole('button', {name: 'Allow'}).click()")
        result = running.result(PATIENCE_S)
    assert not result.get("isError"), result
    assert "ran to its end" in str(result)
    page.run(f"await {card}.waitFor({{state: 'detached'}})")


def test_hostile_names_descriptions_and_messages_are_only_text(page: Browser) -> None:
    page.go("children/pinned/lock")
    page.sees("differences from the lock")
    assert HOSTILE in page.text()
    page.picture(SHOTS / "drift.png")
    page.go("children/pinned/subtools")
    page.run("await page.locator('.pick-list code', {hasText: 'window.hacked=1'}).click()")
    page.run("await page.waitForFunction(() => location.hash.includes('hacked'))")
    page.go("children/evil")
    page.sees(f"command '/no/{HOSTILE}'")
    page.go("children/loud")
    page.run("await page.locator('main pre', {hasText: '<script>window.hacked=2'}).waitFor()")
    page.picture(SHOTS / "stderr.png")
    page.view("mail")
    page.run("await page.locator('.list-row', {hasText: 'Hello <img'}).click()")
    page.run("await page.locator('pre.payload', {hasText: 'Hello <img'}).waitFor()")
    assert page.run("return await page.locator('main img, main script').count()") == 0


def test_a_subtool_is_tried_with_a_form_made_from_its_schema(page: Browser) -> None:
    page.go("children/pinned/subtools/echo")
    page.run("await page.getByLabel('message').fill(args.text)", text=HOSTILE)
    page.run("await page.getByRole('button', {name: 'As JSON'}).click()")
    asked = page.run("return JSON.parse(await page.getByLabel('Arguments as JSON').inputValue())")
    assert asked == {"message": HOSTILE}
    page.run("await page.getByLabel('Arguments as JSON').fill('[1]')")
    page.run("await page.getByRole('button', {name: 'Call', exact: true}).click()")
    page.sees("The arguments must be a JSON object.")
    page.run("await page.getByRole('button', {name: 'As a form'}).click()")
    page.run("await page.getByRole('button', {name: 'Call', exact: true}).click()")
    page.run("await page.getByRole('region', {name: 'Result'}).waitFor()")
    page.picture(SHOTS / "try.png")
    page.run("await page.getByRole('link', {name: 'Details of the call'}).click()")
    page.sees("Timings")
    page.run("await page.getByRole('region', {name: 'Arguments'}).getByText('<img src=x').waitFor()")


def test_standard_error_and_resources_of_a_child_are_shown(page: Browser) -> None:
    page.go("children/loud/stderr")
    page.run("await page.getByRole('log').getByText('<script>window.hacked=2').first().waitFor()")
    page.go("children/pinned/resources")
    page.run("await page.locator('svg.chart[aria-label^=Memory]').waitFor()")


def test_a_child_is_disabled_after_a_question_and_enabled_again(page: Browser, web: Web) -> None:
    page.go("children/spare")
    page.run("await page.getByRole('button', {name: 'Disable'}).click()")
    page.run("await page.locator('dialog[open]').getByRole('button', {name: 'Disable'}).click()")
    page.run("await page.getByRole('button', {name: 'Enable'}).waitFor()")
    assert json.loads((web.workspace / "switchboard.config.json").read_text())["mcpServers"]["spare"][
        "disabled"
    ]
    page.run("await page.getByRole('button', {name: 'Enable'}).click()")
    page.run("await page.getByRole('button', {name: 'Disable'}).waitFor()")


def test_drift_is_approved_and_gone(page: Browser, web: Web) -> None:
    page.go("children/pinned/lock")
    page.run("await page.locator('main').getByRole('button', {name: 'Accept'}).click()")
    page.run("await page.locator('dialog[open]').getByRole('button', {name: 'Accept'}).click()")
    page.sees("Accepted and locked.")
    page.view("children")
    page.run("await page.locator('tr[data-id=pinned] .badge.warn').waitFor({state: 'detached'})")
    assert "drift" not in api(web, "children/pinned").json


def test_a_child_is_stopped_and_its_row_changes_by_itself(page: Browser) -> None:
    page.go("children/pinned")
    page.run("await page.getByRole('button', {name: 'Stop'}).click()")
    page.run("await page.getByRole('button', {name: 'Start', exact: true}).waitFor()")
    page.view("children")
    page.run("await page.locator('tr[data-id=pinned]', {hasText: 'stopped'}).waitFor()")


def test_everything_can_be_reached_by_keys(page: Browser) -> None:
    page.run("await page.evaluate(() => document.activeElement.blur())")
    for view, letter in zip(VIEWS, "ocshamwl", strict=True):
        page.run("await page.keyboard.press('g'); await page.keyboard.press(args.letter)", letter=letter)
        page.run("await page.locator(`#views a[data-view=${args.view}][aria-current]`).waitFor()", view=view)
    page.run("await page.keyboard.press('6')")
    page.run("await page.locator('#views a[data-view=mail][aria-current]').waitFor()")
    page.run("await page.locator('.list-row').nth(1).waitFor()")
    page.run("await page.keyboard.press('/')")
    assert page.run("return await page.evaluate(() => document.activeElement.id)") == "search"
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.keyboard.press('j'); await page.keyboard.press('j')")
    selected = "return await page.locator('.list-row[aria-selected=true]').getAttribute('aria-rowindex')"
    assert page.run(selected) == "2"
    page.run("await page.keyboard.press('Enter')")
    page.run("await page.locator('article .payload').first().waitFor()")
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.locator('.list:focus .list-row[aria-selected=true]').waitFor()")
    assert page.run(selected) == "2"  # where it was
    page.run("await page.keyboard.press('?')")
    page.sees("Dark or light")
    page.run("await page.getByLabel('Single keys work').uncheck()")
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.keyboard.press('2')")
    assert page.run("return page.url()").endswith("#mail")
    page.run("await page.click('#help'); await page.getByLabel('Single keys work').check()")
    page.run("await page.keyboard.press('Escape')")
    assert page.run("return await page.evaluate(() => document.activeElement.id)") == "help"


@each_case(
    ("view", "selected", "opened"),
    [
        ("children", "tbody tr a:focus", "main .facts"),
        ("calls", ".list:focus .list-row[aria-selected=true]", "main .facts"),
        ("audit", ".list:focus .list-row[aria-selected=true]", "dialog[open] dl"),
        ("mail", ".list:focus .list-row[aria-selected=true]", "article .payload"),
    ],
)
def test_the_keys_of_the_help_work_in_every_list(
    page: Browser, web: Web, view: str, selected: str, opened: str
) -> None:
    for _ in range(3):
        call(web)
    page.run("await page.evaluate(() => document.activeElement.blur())")
    page.run("await page.keyboard.press(args.key)", key=str(VIEWS.index(view) + 1))
    # Rows of the former view are no sign.
    page.run("await page.waitForSelector(`#views a[data-view=${args.view}][aria-current]`)", view=view)
    rows = "tbody tr" if view == "children" else ".list-row"
    page.run("await page.locator(args.rows).nth(2).waitFor()", rows=rows)
    shown = "return await page.locator(args.selected).innerText()"
    for down, up in (("j", "k"), ("ArrowDown", "ArrowUp")):
        page.run("await page.keyboard.press(args.key)", key=down)
        first = page.run(shown, selected=selected)
        page.run("await page.keyboard.press(args.key)", key=down)
        # Calls that are still on their way to the page come in above.
        page.run("await page.keyboard.press(args.key)", key=up)
        assert page.run(shown, selected=selected) == first
    page.run("await page.keyboard.press('Enter')")
    page.run("await page.locator(args.opened).first().waitFor()", opened=opened)
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.locator(args.opened).first().waitFor({state: 'hidden'})", opened=opened)
    page.run("await page.keyboard.press('/')")
    assert page.run("return await page.evaluate(() => document.activeElement.id)") == "search"
    page.run("await page.keyboard.press('Escape')")


def test_calls_name_their_client_and_savings_their_base_line(page: Browser, web: Web) -> None:
    session = web.initialize()
    for _ in range(3):
        arguments = {"action": "call", "subtool": "echo", "args": {"message": "x"}}
        session.result("tools/call", {"name": "pinned_suite", "arguments": arguments})
    page.view("overview")
    page.sees("Compared with listing every tool of these suites in each session that called something (")
    page.run("await page.locator('.card.last li', {hasText: 'pinned · echo'}).first().waitFor()")
    page.run("await page.locator('.card.last li', {hasText: 'test'}).first().waitFor()")


# An event stream that a test fills: what a page gets in weeks, in a second.
FAKE_STREAM = """
    window.RealEventSource ??= window.EventSource;
    window.EventSource = class extends EventTarget {
      constructor() { super(); window.stream = this; queueMicrotask(() => this.dispatchEvent(new Event('open'))); }
      close() {}
    };
    const { connect, known } = await import('/static/server.js');
    await connect();
    window.feed = (name, data) =>
      window.stream.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
    window.kept = () => ({
      calls: known.calls.length, savings: known.points.length, history: known.history.length,
      children: known.children.size, elements: document.querySelectorAll('*').length,
    });
"""
FEED = """
    const first = 1e6, at = Date.now();
    for (let done = 0; done < 20000; done += 200) {
      const numbers = Array.from({ length: 200 }, (_, place) => done + place);
      const call = (n) => ({ seq: first + n, at: at + n, kind: 'call', who: 'x', child: `c${n}`, subtool: `t${n}`,
                             outcome: 'ok', ms: 1, client: `client ${n}`, session: `s${n}` });
      feed('calls', { calls: numbers.map(call), seq: first + done + 199 });
      for (const n of numbers) {
        feed('savings', { point: [at + n * 1000, n] });
        feed('history', { point: [at + n * 5000, 5, 1, 0, 1, 1] });
        feed('resources', { points: { pinned: [at + n * 5000, 1, 1000] } });
      }
      const id = (n) => `child ${n}`;
      feed('children', { changed: numbers.map((n) => ({ id: id(n), child: id(n), suite: id(n), health: 'healthy' })),
                         gone: numbers.map((n) => id(n - 200)) });
      feed('attention', { attention: numbers.map((n) => ({ level: 'error', kind: 'child', text: `trouble ${n}` })) });
    }
    feed('children', { changed: [], gone: Array.from({ length: 200 }, (_, n) => `child ${19800 + n}`) });
    const fed = kept();  // before anything is fetched again
    await new Promise((done) => setTimeout(() => requestAnimationFrame(done), 300));
    return { ...fed, elements: kept().elements };
"""


@each_case("view", ["calls", "children/pinned/resources"])
def test_a_page_that_stays_open_keeps_a_limited_number_of_things(page: Browser, view: str) -> None:
    page.go(view)
    page.run(f"await page.evaluate(async () => {{ {FAKE_STREAM} }})")
    before = page.run("return await page.evaluate(() => kept())")
    after = page.run(f"return await page.evaluate(async () => {{ {FEED} }})")
    assert 10_000 <= after["calls"] <= 12_000
    assert 600 <= after["savings"] <= 1_200
    assert 1_000 <= after["history"] <= 1_500
    assert after["children"] == before["children"]
    assert after["elements"] < 3_000
    if view == "calls":
        shown = page.run("return await page.locator('.tools [role=status]').innerText()")
        assert int(shown.split()[0].replace(",", "")) <= 12_000
        assert page.run("return await page.locator('.list-row').count()") < 100
    page.run("await page.reload(); await page.waitForSelector('#views a[aria-current]')")


def test_after_a_restart_the_page_dims_what_is_old_asks_for_a_login_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    folder = make_workspace(tmp_path / "ws")
    with serving(folder) as web, browser(tmp_path / "profile") as page:
        call(web)
        page.open(link_of(web))
        page.view("calls")
        page.run("await page.locator('.list-row').first().waitFor()")
        page.run("globalThis.other = await context.newPage(); await other.goto(page.url())")
        page.run("await other.locator('.list-row').first().waitFor()")
        stop(web.process)
        page.run("await page.locator('main.stale').waitFor()")
        page.run("await page.locator('#line', {hasText: 'lost'}).waitFor()")
        page.sees("The server cannot be reached. It may be restarting.")
        assert page.run("return await page.locator('.list-row').count()") == 1
        with start(folder, f"127.0.0.1:{web.port}", log=web.log) as process:
            try:
                again = Web(process, folder, web.log)
                page.sees("The server has restarted")
                assert page.run("return await page.locator('.list-row').count()") == 0
                # The link, pasted into the tab that asks for it, leads on to the view that was there.
                page.run("await page.goto(args.link)", link=link_of(again))
                page.sees("No calls yet")
                assert page.run("return page.url()").endswith("/#calls")
                page.run("await page.locator('main:not(.stale)').waitFor()")
                call(again)
                page.run("await page.locator('.list-row').first().waitFor()")
                # The other tab has logged in with this one.
                page.run("await other.locator('.list-row').first().waitFor()")
                page.run("await page.click('#logout')")
                page.run("await other.getByText('You have logged out in another tab.').waitFor()")
            finally:
                stop(process)


def test_an_answer_that_takes_long_is_no_wrong_clock(page: Browser) -> None:
    skews = page.run(
        "return await page.evaluate(async () => { const { skewOf } = await import('/static/server.js');"
        "  return [[0, 9000, 100], [0, 9000, 8900], [9000, 9100, 0], [0, 100, 9000]].map((one) => skewOf(...one)); })"
    )
    assert skews == [0, 0, 9000, -8900]


def test_a_lost_network_an_upgrade_and_a_wrong_clock_are_named_and_recovered_from(page: Browser) -> None:
    page.view("children")
    page.run("await context.setOffline(true)")
    page.sees("This device is offline.")
    page.run(
        "await page.route('**/api/overview', async (route) => {"
        "  const answer = await route.fetch(); const body = await answer.json();"
        "  await route.fulfill({ response: answer, json: { ...body, version: '9.9.9', now: body.now - 330000 } });"
        "})"
    )
    page.run("await context.setOffline(false)")
    page.sees("Switchboard was upgraded to 9.9.9.")
    page.run("await page.locator('#line', {hasText: 'live'}).waitFor()")
    page.run("await page.evaluate(() => { window.before = true })")
    page.view("audit")
    page.run("await page.waitForFunction(() => !window.before)")  # loaded again, and where it was going
    page.sees("The clock of this device is 5 min ahead of the server's.")
    assert page.run("return page.url()").endswith("#audit")
    page.run("await page.unroute('**/api/overview')")
    page.run("await page.route('**/api/overview', (route) => route.fulfill({ status: 503, json: {} }))")
    page.run("await page.reload()")
    page.sees("Trying again every 2 seconds.")
    page.run("await page.unroute('**/api/overview')")
    page.run("await page.locator('.list-row').first().waitFor()")
    assert page.run("return await page.locator('.banner').count()") == 0
    page.run("await page.route('**/events?*', (route) => route.fulfill({ status: 503, json: {} }))")
    page.run("await page.reload()")
    page.sees("too many are open")
    page.run("await page.unroute('**/events?*'); await page.getByRole('button', {name: 'Try now'}).click()")
    page.run("await page.locator('#line', {hasText: 'live'}).waitFor()")
    assert page.run("return await page.locator('.banner').count()") == 0
    page.run("heard.length = 0")  # requests that failed while there was no network


@needs_axe
def test_axe_finds_nothing_on_any_view_in_either_theme(page: Browser, web: Web) -> None:
    found: list[str] = []
    call(web)
    latest = api(web, "calls").json["calls"][-1]["seq"]
    message = api(web, "mail/messages").json["messages"][0]
    run = api(web, "mail/workflows").json["workflows"][0]["id"]
    objects = (
        f"calls/{latest}",
        "calls/waterfall",
        "calls/latency",
        "calls/errors",
        "children/pinned",
        "children/pinned/subtools/echo",
        "children/loud/stderr",
        "children/pinned/resources",
        "children/pinned/lock",
        "children/pinned/sandbox",
        "mail?tab=threads",
        "mail?tab=agents",
        "mail?tab=dead",
        f"mail/{message['to']}/{message['id']}",
        f"workflows/{run}",
    )
    for theme in ("light", "dark"):
        page.run(
            "await page.evaluate((theme) => { document.documentElement.dataset.theme = theme }, args.t)",
            t=theme,
        )
        for address in (*VIEWS, *objects):
            page.go(address)
            page.run("await page.locator('main h2').waitFor(); await page.waitForTimeout(120)")
            rules = ("color-contrast",) if theme == "dark" else ()  # nothing else differs
            found += [f"{theme} {address}: {each}" for each in page.violations(*rules)]
    assert found == []
    page.picture(SHOTS / "dark.png")
    page.run("await page.keyboard.press('?')")
    assert page.violations() == []
    page.run("await page.keyboard.press('Escape')")
    page.run("await page.evaluate(() => { delete document.documentElement.dataset.theme })")


@each_case("width", [400, 900, 1920])
def test_every_view_fits_its_width(page: Browser, width: int) -> None:
    page.run("await page.setViewportSize({width: args.width, height: 844})", width=width)
    wide = "return await page.evaluate(() => document.documentElement.scrollWidth)"
    for address in (
        *VIEWS,
        "children/evil",
        "children/loud",
        "children/pinned/subtools",
        "calls/errors",
        "calls/waterfall",
    ):
        page.go(address)
        page.run("await page.locator('main h2').waitFor()")
        assert page.run(wide) <= width, address
    page.picture(SHOTS / f"wide-{width}.png", width, 844)
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


@pytest.mark.soak("servers")
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
        page.view("children")
        page.run("await page.locator('tbody tr').nth(args.n).waitFor()", n=MANY_CHILDREN - 1)
        children = (time.perf_counter() - began) * 1000
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
            f"driver), children {children:.0f} ms, mail {mail:.0f} ms, a word in message 2,000 found in {search:.0f} ms"
        )
        assert page.heard == []


# Since the navigation began, until the tiles were there.
FIRST_VIEW = "return await page.evaluate(() => performance.getEntriesByName('shown')[0]?.startTime ?? 0)"


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
