"""Two servers behind a real nginx with the published example's config, while one of them is killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.e2e.host import Json
from tests.e2e.redisserver import free_port
from tests.e2e.web import Web, call, headers_of, modern, request, serving
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure
from tests.patience import PATIENCE_S

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
CONF = Path(__file__).parents[2] / "examples" / "replicas" / "nginx.conf"
TOKEN = "token-of-the-team-0123456789"
pytestmark = pytest.mark.skipif(
    NGINX is None, reason="nginx is not installed (Debian: apt-get install nginx-light)"
)


class Balanced(Web):
    """Whatever stands behind nginx."""

    def __init__(self, port: int) -> None:
        self.host, self.port, self.token = "127.0.0.1", port, TOKEN


@contextmanager
def nginx(folder: Path, a: Web, b: Web) -> Iterator[Balanced]:
    assert NGINX is not None
    port = free_port()
    text = CONF.read_text().replace("gateway-a:3100", f"127.0.0.1:{a.port}")
    text = text.replace("gateway-b:3100", f"127.0.0.1:{b.port}").replace(
        "listen 8080", f"listen 127.0.0.1:{port}"
    )
    (folder / "tmp").mkdir(parents=True)
    (folder / "nginx.conf").write_text(text)
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [
            NGINX,
            "-p",
            str(folder),
            "-c",
            "nginx.conf",
            "-e",
            "stderr",
            "-g",
            "daemon off; master_process off;",
        ],
        stderr=log,
    )
    try:
        balanced = Balanced(port)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if balanced.ask("GET", "/health").status == 200:
                    break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield balanced
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        log.close()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[Balanced, dict[str, Web]]]:
    with ExitStack() as stack:
        webs = {}
        for name in ("a", "b"):
            workspace = tmp_path / name
            workspace.mkdir()
            configure(workspace, {"http": {"tokens": {"team": TOKEN}}})
            add_child(workspace, "gate", MOCK_CHILD)
            env = {"SWITCHBOARD_REPLICA": name, "XDG_CACHE_HOME": str(workspace / "cache")}
            webs[name] = stack.enter_context(serving(workspace, env=env))
        yield stack.enter_context(nginx(tmp_path / "nginx", webs["a"], webs["b"])), webs


def test_a_replica_is_killed_under_load_and_only_what_was_under_way_on_it_fails_with_a_clear_word(
    replicas: tuple[Balanced, dict[str, Web]],
) -> None:
    balanced, webs = replicas
    outcomes: Counter[str] = Counter()
    wrong: list[object] = []
    killed, enough = threading.Event(), threading.Event()
    workers = 8

    def work(number: int) -> None:
        for count in range(100_000):
            if enough.is_set():
                return
            text = f"{number} {count}"
            message = modern("tools/call", call("echo", text), id=count)
            try:
                answer = balanced.post(message, headers_of(message))
            except (OSError, HTTPException) as problem:
                wrong.append(repr(problem))
                continue
            body = (
                answer.json if answer.status != 200 or answer.body.startswith(b"{") else _event(answer.body)
            )
            if answer.status == 200 and body.get("id") == count and text in json.dumps(body.get("result")):
                outcomes["after" if killed.is_set() else "before"] += 1
            elif (
                answer.status == 503 and body["error"]["data"]["retryable"] and answer.headers["retry-after"]
            ):
                outcomes["retryable"] += 1
            else:
                wrong.append((answer.status, answer.body[:300]))

    threads = [threading.Thread(target=work, args=[number]) for number in range(workers)]
    for thread in threads:
        thread.start()
    _until(lambda: outcomes["before"] >= 200)
    webs["a"].process.kill()
    killed.set()
    _until(lambda: outcomes["after"] >= 200)
    enough.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    # No more than each worker's one call can have been under way on it.
    assert outcomes["retryable"] <= workers


def test_a_session_goes_to_the_replica_that_has_it_and_is_begun_anew_when_that_is_gone(
    replicas: tuple[Balanced, dict[str, Web]],
) -> None:
    balanced, webs = replicas
    sessions = [balanced.initialize() for _ in range(6)]
    assert {session.key.partition(".")[0] for session in sessions} == {"a", "b"}
    for session in sessions:
        assert session.result("tools/list")["tools"]
    webs["a"].process.kill()
    webs["a"].process.wait()
    for session in sessions:
        answer = balanced.post(request("tools/list"), session.headers)
        if session.key.startswith("a."):
            assert answer.status == 404
            assert answer.json["error"]["data"]["retryable"]
        else:
            assert answer.status == 200
    anew = balanced.initialize()
    assert anew.key.startswith("b.")
    assert anew.result("tools/list")["tools"]


def test_a_session_of_the_older_transport_goes_to_its_replica_too_and_ends_with_it(
    replicas: tuple[Balanced, dict[str, Web]],
) -> None:
    balanced, webs = replicas
    with ExitStack() as stack:
        roads = []
        for _ in range(4):
            stream = stack.enter_context(balanced.open("GET", "/sse", None, {"Accept": "text/event-stream"}))
            endpoint = stream.event()
            assert endpoint is not None
            roads.append(endpoint.data)
        assert {road.partition("=")[2].partition(".")[0] for road in roads} == {"a", "b"}
        for road in roads:
            assert [balanced.ask("POST", road, request("ping")).status for _ in range(2)] == [202, 202]
        webs["a"].process.kill()
        webs["a"].process.wait()
        told = {road.partition("=")[2][0]: balanced.ask("POST", road, request("ping")) for road in roads}
        assert (told["a"].status, told["b"].status) == (404, 202)
        assert "new session" in told["a"].json["error"]["message"]


def _event(body: bytes) -> Json:
    data = [line[5:].strip() for line in body.decode().splitlines() if line.startswith("data:")]
    found: Json = json.loads(data[-1])
    return found


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
