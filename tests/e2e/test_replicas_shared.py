"""Two servers that say they are replicas, and a real Redis: limits and quarantine count for both of them."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from switchboard_mcp.bus.redis_client import RIGHTS
from switchboard_mcp.bus.replicas.counters import ReplicaCounters, TokenRequest
from switchboard_mcp.config.sections import BusSettings
from tests.e2e.browser import browser, needs_browser
from tests.e2e.host import SWITCHBOARD, Json
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.e2e.test_dashboard import link_of
from tests.e2e.web import Web, call, headers_of, modern, serving
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, scripted
from tests.patience import PATIENCE_S

pytestmark = needs_redis
TOKENS = {"ann": "token-of-ann-0123456789", "ben": "token-of-ben-0123456789"}
# Notes each of its starts in its folder, and ends at once while a file there says so.
FRAIL = """
    import os
    with open("starts", "a") as file:
        file.write("x")
    if os.path.exists("broken"):
        sys.exit("no licence")
    Child().serve()
"""
# A suite for each test, so that none finds a bucket that another has drawn from.
LIMITS: dict[str, Json] = {
    "both": {"callsPerMinute": 60, "burst": 10},
    "each": {"callsPerMinute": 1, "burst": 3, "per": "principal"},
    "hung": {"callsPerMinute": 1, "burst": 50},
    "many": {"callsPerMinute": 60_000},
}


class Pair:
    """Two replicas, each with a folder of its own, and their Redis."""

    def __init__(self, redis: RedisServer, folders: list[Path], webs: list[Web]) -> None:
        self.redis = redis
        self.folders = folders
        self.webs = webs

    def sharing(self) -> set[str]:
        return {web.ask("GET", "/health").json["replicas"] for web in self.webs}


@contextmanager
def replicas(base: Path, children: dict[str, Json]) -> Iterator[Pair]:
    """Two of them; each child with its limits, and one that is frail."""
    redis = RedisServer(base / "redis")
    redis.start()
    config = {
        "http": {"tokens": TOKENS},
        "suites": {name: {"limits": limits} for name, limits in children.items()},
        "health": {"failures": 1, "quarantineMs": 60_000},
    }
    try:
        with ExitStack() as stack:
            folders = [base / "a", base / "b"]
            webs = []
            for folder in folders:
                folder.mkdir()
                configure(
                    folder, {**config, "mail": {"enabled": folder.name == "b"}}
                )  # the relay runs for it
                for name in children:
                    add_child(folder, name, MOCK_CHILD)
                add_child(folder, "frail", scripted(FRAIL))
                env = {"SWITCHBOARD_REPLICA": folder.name, "SWITCHBOARD_BUS_URL": redis.url}
                webs.append(stack.enter_context(serving(folder, env=env)))
            yield Pair(redis, folders, webs)
    finally:
        redis.kill()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with replicas(tmp_path_factory.mktemp("replicas"), LIMITS) as found:
        yield found


def use(web: Web, child: str, who: str = "ann") -> Json:
    """The error of one call; empty where it went well."""
    message = modern("tools/call", call("echo", "hello", suite=f"{child}_suite"))
    answer = web.post(message, headers_of(message, Authorization=f"Bearer {TOKENS[who]}"))
    text = answer.body.decode()
    if not text.startswith("{"):
        text = [line[5:] for line in text.splitlines() if line.startswith("data:")][-1]
    error: Json = json.loads(text)["result"].get("structuredContent", {}).get("error", {})
    return error


def hammer(webs: list[Web], child: str, times: int, who: str = "ann") -> Counter[str]:
    """Many calls at once on all of them: how they ended."""
    with ThreadPoolExecutor(max_workers=8) as workers:
        found = workers.map(lambda web: use(web, child, who).get("code", "ok"), webs * times)
        return Counter(found)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_two_replicas_together_allow_what_one_bucket_holds(pair: Pair) -> None:
    began = time.monotonic()
    outcomes = hammer(pair.webs, "both", 20)
    took_s = time.monotonic() - began
    assert set(outcomes) == {"ok", "rate_limited"}
    assert 10 <= outcomes["ok"] <= 10 + took_s + 1


def test_each_principal_has_one_bucket_for_both_replicas(pair: Pair) -> None:
    assert hammer(pair.webs, "each", 4, "ann") == {"ok": 3, "rate_limited": 5}
    assert hammer(pair.webs, "each", 4, "ben") == {"ok": 3, "rate_limited": 5}
    assert 0 < use(pair.webs[1], "each")["retryAfterMs"] <= 60_000


def test_calls_that_wait_are_asked_for_together(pair: Pair) -> None:
    """However many come while an answer is on its way, they cost one question."""
    web = pair.webs[0]
    use(web, "many")
    before = pair.redis.calls("evalsha")
    batch = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call("echo", suite="many_suite")}
        for number in range(200)
    ]
    answer = web.post(batch, web.initialize("2025-03-26").headers)
    assert answer.body.count(b'"result"') == 200
    assert pair.redis.calls("evalsha") - before <= 20


def test_a_child_in_quarantine_on_one_replica_is_not_started_on_the_other_until_it_is_well(
    pair: Pair,
) -> None:
    a, b = pair.webs
    here, there = (folder / "mcps" / "frail" for folder in pair.folders)
    (here / "broken").touch()
    assert use(a, "frail")["code"] == "child_start_failed"
    until(lambda: pair.redis.keys("quarantine:frail:*") == 1)
    mine, theirs = use(a, "frail"), use(b, "frail")
    assert mine["code"] == theirs["code"] == "child_quarantined"
    assert abs(theirs["retryAfterMs"] - mine["retryAfterMs"]) < 5_000
    assert "On replica 'a': Child 'frail'" in theirs["message"]
    assert not (there / "starts").exists()
    shown = subprocess.run(
        [*SWITCHBOARD, "status"],
        cwd=pair.folders[1],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert shown.returncode == 1
    assert "quarantined" in shown.stdout
    assert "On replica 'a'" in shown.stdout
    # Mended, and started by hand where it was broken; an answer there is what counts.
    (here / "broken").unlink()
    assert a.ask("POST", "/api/children/frail/start", {}).status == 200
    assert use(b, "frail")["code"] == "child_quarantined"
    until(lambda: not use(a, "frail") and not use(b, "frail"))
    assert (there / "starts").read_text() == "x"


def test_a_redis_that_hangs_holds_calls_up_once_and_not_for_long(pair: Pair) -> None:
    use(pair.webs[0], "hung")
    pair.redis.pause()
    try:
        assert hammer(pair.webs[:1], "hung", 20) == {"ok": 20}
        assert "away" in pair.sharing()
    finally:
        pair.redis.resume()
    until(lambda: pair.sharing() == {"connected"})


@needs_browser
def test_an_open_dashboard_shows_that_bus_and_replicas_are_away_and_back(pair: Pair, tmp_path: Path) -> None:
    row = "await page.locator('.card li.row', {hasText: args.label}).filter({hasText: args.word})"

    row += ".waitFor({timeout: 60000})"  # the relay reports every few seconds

    def shows(bus: str, replicas: str) -> None:
        page.run(row, label="Bus", word=bus)
        page.run(row, label="Replicas", word=replicas)

    with browser(tmp_path / "profile") as page:
        page.open(link_of(pair.webs[1]))
        shows("connected", "connected")
        pair.redis.pause()
        try:
            use(pair.webs[1], "each")
            shows("away", "down")
            page.sees("Other replicas cannot be reached")
            page.sees("The relay is away")
        finally:
            pair.redis.resume()
        shows("connected", "connected")
        page.run("await page.getByText('The relay is away').waitFor({state: 'detached'})")
    until(lambda: pair.sharing() == {"connected"})


def test_without_redis_each_counts_alone_and_both_come_together_again_when_it_is_back(tmp_path: Path) -> None:
    with replicas(tmp_path, {"away": {"callsPerMinute": 1, "burst": 3}}) as pair:
        a, b = pair.webs
        assert hammer([a], "away", 4)["ok"] == 3
        assert use(b, "away")["code"] == "rate_limited"
        pair.redis.kill()
        # Its own bucket has not been drawn from, and the other's has.
        assert hammer([b], "away", 6)["ok"] == 3
        assert use(a, "away")["code"] == "rate_limited"
        assert pair.sharing() == {"away"}
        pair.redis.start()
        until(lambda: pair.sharing() == {"connected"})
        pair.redis.ask("FLUSHALL")
        assert hammer(pair.webs, "away", 6)["ok"] == 3
        assert [web.log.read_text().count("replicas.away") for web in pair.webs] == [1, 1]


@pytest.mark.parametrize(
    ("debt_ms", "wanted", "granted", "most_wait_s"),
    [
        (0, 3, 3, 0.0),
        (0, 25, 10, 1.0),
        (8_900, 5, 1, 1.0),
        (9_500, 5, 0, 0.5),
        (10_000, 5, 0, 1.0),
        (1_000_000_000, 5, 0, 1.0),  # as after a clock that was set back: no more than a bucket is owed
    ],
)
async def test_a_bucket_by_the_clock_of_redis(
    pair: Pair, debt_ms: int, wanted: int, granted: int, most_wait_s: float
) -> None:
    counters = ReplicaCounters(BusSettings(url=pair.redis.url, prefix="sums"))
    pair.redis.ask("FLUSHALL")
    if debt_ms:
        pair.redis.ask("SET", "{sums}:rate:x", "0", "PX", str(debt_ms))
    told, other = await counters.take_tokens(
        [TokenRequest("x", 60, 10, wanted), TokenRequest("y", 60, 10, 1)]
    )
    await counters.close()
    assert told[0] == granted
    assert told[1] <= most_wait_s
    assert (told[1] > 0) == (granted < wanted)
    assert other == (1, 0.0)


async def test_a_bucket_fills_as_time_goes_and_no_faster(pair: Pair) -> None:
    """A rate that is no whole number of milliseconds, asked for often: nothing is rounded away, nothing given."""
    counters = ReplicaCounters(BusSettings(url=pair.redis.url, prefix="sums"))
    request, each_s = TokenRequest("often", 7_000, 7_000, 7_000), 60 / 7_000
    before = time.monotonic()
    assert (await counters.take_tokens([request]))[0][0] == 7_000
    emptied = time.monotonic()
    granted, last = 0, emptied
    while granted < 30:
        last = time.monotonic()
        granted += (await counters.take_tokens([request]))[0][0]
    after = time.monotonic()
    await counters.close()
    assert (last - emptied) / each_s - 1 <= granted + 0.5 <= (after - before) / each_s + 1.5


async def test_the_rights_that_mail_needs_are_enough(pair: Pair) -> None:
    pair.redis.ask("ACL", "SETUSER", "replica", "on", ">secret", "~{sums}:*", *RIGHTS.split())
    counters = ReplicaCounters(
        BusSettings(url=pair.redis.url.replace("//", "//replica:secret@"), prefix="sums")
    )
    assert (await counters.take_tokens([TokenRequest("z", 60, 10, 1)]))[0][0] == 1
    await counters.set_quarantine("kid", b"notice", 60_000)
    told = await counters.quarantine("kid")
    assert told is not None
    assert (told[0], 50 < told[1] <= 60) == (b"notice", True)
    await counters.clear_quarantine("kid")
    assert await counters.quarantine("kid") is None
    await counters.close()
