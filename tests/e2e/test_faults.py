"""Children that misbehave, as real processes: what a host gets, and that Switchboard and the other children live on.

One class of tests for each class of fault. Whatever happens, every request is answered once, or was cancelled.
"""

from __future__ import annotations

import collections
import json
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.host import SWITCHBOARD, Host, Json, switchboard
from tests.e2e.stress import (
    PLAIN,
    alive,
    descriptors,
    keepers,
    memory_mib,
    next_line,
    recorded,
    serves_again,
    survivors,
    tree,
    until,
)
from tests.e2e.workspaces import add_child, configure, faulty

Serve = Callable[..., Host]


@pytest.fixture
def serve(workspace: Path) -> Iterator[Serve]:
    """Starts a Switchboard with the given children; each writes its pids to `NAME.pids`."""
    hosts: list[Host] = []

    def serve(config: Json | None = None, /, **children: list[str]) -> Host:
        for name, command in children.items():
            add_child(workspace, name, command, env={"FAULTY_PIDS": str(workspace / f"{name}.pids")})
        if config is not None:
            configure(workspace, config)
        # What watches files has descriptors of its own, which come at some time after the first answer.
        host = switchboard(workspace, "--no-reload")
        hosts.append(host)
        host.initialize()
        return host

    yield serve
    for host in hosts:
        with host:
            host.close()
            check_answers(host)


def check_answers(host: Host) -> None:
    """Nothing was answered twice, and nothing went wrong inside."""
    answers = [told.json for told in host.heard if "id" in told.json and "method" not in told.json]
    times = collections.Counter(json.dumps(answer["id"]) for answer in answers)
    assert [id for id, count in times.items() if count > 1] == []
    assert "internal" not in host.stderr


def starts(workspace: Path, child: str) -> int:
    """How many processes of this child have been started."""
    return len(recorded(workspace / f"{child}.pids"))


def ask(host: Host, suite: str, subtool: str = "echo", **args: Any) -> int | str:
    arguments = {"action": "call", "subtool": subtool, "args": args}
    return host.ask("tools/call", {"name": suite, "arguments": arguments})


def text(result: Json) -> str:
    assert not result.get("isError"), result
    value: str = result["content"][0]["text"]
    return value


def echo(host: Host, suite: str, message: str = "hello") -> str:
    return text(host.call(suite, "echo", message=message))


def error(host: Host, id: int | str) -> Json:
    """The structured error of a suite call."""
    result = host.answer(id)["result"]
    assert result["isError"] is True, result
    found: Json = result["structuredContent"]["error"]
    return found


ODD_WRITERS = {
    "log_lines": faulty("log-lines"),
    "headers": faulty("content-length"),
    "split": faulty("split"),
    "split_headers": faulty("split", "content-length"),
    "duplicates": faulty("duplicates"),
    "unknown_ids": faulty("unknown-id"),
    "stderr": faulty("stderr-burst"),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Switchboard with all of them, for all their tests."""
    folder = tmp_path_factory.mktemp("framing")
    for name, command in ODD_WRITERS.items():
        add_child(folder, name, command)
    with switchboard(folder, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}) as host:
        host.initialize()
        yield host
        host.close()
        check_answers(host)


class TestFraming:
    """What comes out of a child's stdout besides plain lines."""

    @pytest.mark.parametrize("mode", ODD_WRITERS)
    def test_a_child_is_understood_however_it_writes(self, odd: Host, mode: str) -> None:
        ids = [ask(odd, f"{mode}_suite", message=f"é {number}") for number in range(5)]
        assert [text(odd.answer(id)["result"]) for id in ids] == [f"é {number}" for number in range(5)]

    def test_bytes_that_are_not_utf8_are_replaced_and_the_rest_stays(self, serve: Serve) -> None:
        host = serve(invalid=faulty("invalid-utf8"))
        assert text(host.call("invalid_suite", "echo")).startswith("caf\ufffd")
        assert text(host.call("invalid_suite", "echo")).endswith(" end")

    def test_a_result_of_64_mib_passes(self, serve: Serve, workspace: Path) -> None:
        host = serve(big=faulty("big"))
        host.call("big_suite", "big", mib=1)
        id = ask(host, "big_suite", "big", mib=64)
        answer = json.loads(next_line(host))
        assert answer["id"] == id
        assert len(text(answer["result"])) == 64 << 20
        assert text(answer["result"]).count("x") == 64 << 20
        assert peak_mib(host) < 64 * 6  # a few copies at once, and no more
        assert echo(host, "big_suite") == "hello"
        assert starts(workspace, "big") == 1

    def test_an_answer_beyond_the_limit_fails_its_own_call_alone(self, serve: Serve, workspace: Path) -> None:
        host = serve(big=faulty("big"))
        before, large, after = (
            ask(host, "big_suite", message="before"),
            ask(host, "big_suite", "big", mib=130),
            ask(host, "big_suite", message="after"),
        )
        assert text(host.answer(before)["result"]) == "before"
        assert error(host, large)["code"] == "message_too_large"
        assert text(host.answer(after)["result"]) == "after"
        assert starts(workspace, "big") == 1
        assert peak_mib(host) < 400

    def test_a_message_to_a_child_may_be_as_large(self, serve: Serve) -> None:
        host = serve(plain=PLAIN)
        echo(host, "plain_suite")
        message = "y" * (64 << 20)
        ask(host, "plain_suite", message=message)
        assert text(json.loads(next_line(host))["result"]) == message

    @pytest.mark.parametrize("how", ["broken", "deep"])
    def test_an_answer_that_cannot_be_read_fails_its_own_call_at_once(self, serve: Serve, how: str) -> None:
        host = serve(odd=faulty("unreadable", how))
        first, second = ask(host, "odd_suite", message="x"), ask(host, "odd_suite", message="fine")
        assert error(host, first)["code"] == "child_protocol"
        assert text(host.answer(second)["result"]) == "fine"

    @pytest.mark.parametrize("share", ["0.001", "0.5", "0.999"])
    def test_a_child_that_dies_inside_a_message_has_crashed(self, serve: Serve, share: str) -> None:
        host = serve(dies=faulty("dies-inside", share))
        for _ in range(2):
            told = host.failure("dies_suite", action="call", subtool="echo")
            assert told["code"] == "child_crashed"
            assert "SIGKILL" in told["message"]


def peak_mib(host: Host) -> float:
    """The most memory Switchboard has held so far."""
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


class TestStartsAndIds:
    """One process for however many calls, and each call its own answer."""

    def test_a_hundred_first_calls_start_one_process(self, serve: Serve, workspace: Path) -> None:
        host = serve(slow=faulty("slow-start", "0.2"))
        ids = [ask(host, "slow_suite", message=str(number)) for number in range(100)]
        assert [text(host.answer(id)["result"]) for id in ids] == [str(number) for number in range(100)]
        assert starts(workspace, "slow") == 1

    def test_a_running_child_is_reused(self, serve: Serve, workspace: Path) -> None:
        host = serve(plain=PLAIN)
        assert [echo(host, "plain_suite", str(number)) for number in range(20)] == [str(n) for n in range(20)]
        host.introspect("plain_suite")
        assert starts(workspace, "plain") == 1

    def test_answers_out_of_order_reach_the_calls_they_belong_to(self, serve: Serve) -> None:
        host = serve(reverse=faulty("out-of-order", "20"))
        ids = [ask(host, "reverse_suite", message=f"m{number}") for number in range(20)]
        assert [text(host.answer(id)["result"]) for id in ids] == [f"m{number}" for number in range(20)]
        order = [told.json["id"] for told in host.heard if told.json.get("id") in ids]
        assert order == ids[::-1], "they are passed on as they come"

    def test_a_request_of_the_child_with_the_id_of_a_call_does_not_answer_it(self, serve: Serve) -> None:
        host = serve(asks=faulty("asks-back"))
        for _ in range(3):
            result = host.call("asks_suite", "echo")
            assert text(result) == "heard 3"
            heard = result["structuredContent"]["heard"]
            assert heard[0]["result"] == {}

    def test_calls_to_a_slow_child_do_not_hold_up_another(self, serve: Serve) -> None:
        host = serve(slow=faulty("never-answers"), plain=PLAIN)
        waiting = ask(host, "slow_suite", message="x")
        assert echo(host, "plain_suite") == "hello"
        host.notify("notifications/cancelled", {"requestId": waiting})


class TestTimeouts:
    """Calls that take too long, and answers that come too late."""

    def test_the_child_is_told_and_its_late_answer_is_nobodys(self, serve: Serve, workspace: Path) -> None:
        cancelled = workspace / "cancelled"
        host = serve({"suites": {"late": {"rpcMs": 1000}}}, late=faulty("late", str(cancelled)))
        host.call("late_suite", "echo", message="up")
        late = ask(host, "late_suite", "late", message="too late")
        told = error(host, late)
        assert told["code"] == "child_timeout"
        assert told["retryable"] is True
        assert "within 1 s" in told["message"]
        # The child answers the old call when it hears of its end; what it answers next comes behind that.
        (line,) = until(lambda: lines(cancelled), "the child was told")
        assert json.loads(line)["params"]["reason"] == "timeout"
        assert [echo(host, "late_suite", f"m{number}") for number in range(10)] == [
            f"m{n}" for n in range(10)
        ]
        assert starts(workspace, "late") == 1

    def test_many_calls_time_out_each_for_itself(self, serve: Serve, workspace: Path) -> None:
        cancelled = workspace / "cancelled"
        host = serve({"suites": {"late": {"rpcMs": 1500}}}, late=faulty("late", str(cancelled)))
        ids = [ask(host, "late_suite", "late", message=str(n)) for n in range(50)]
        quick = [ask(host, "late_suite", "echo", message=str(n)) for n in range(50)]
        assert [text(host.answer(id)["result"]) for id in quick] == [str(n) for n in range(50)]
        assert {error(host, id)["code"] for id in ids} == {"child_timeout"}
        until(lambda: len(lines(cancelled)) == 50, "the child was told of each")

    def test_a_cancellation_that_races_the_answer_leaves_at_most_one(self, serve: Serve) -> None:
        host = serve(plain=PLAIN)
        echo(host, "plain_suite")
        for number in range(200):
            id = ask(host, "plain_suite", message=f"cancelled {number}")
            if number % 2:
                host.request("ping")
            host.notify("notifications/cancelled", {"requestId": id, "reason": "changed my mind"})
            assert echo(host, "plain_suite", f"kept {number}") == f"kept {number}"


class TestCrashes:
    """Children that end without being asked to."""

    def test_every_call_in_flight_fails_with_the_last_words_of_the_child(self, serve: Serve) -> None:
        host = serve(crash=faulty("crashes-on", "3"))
        ids = [ask(host, "crash_suite", message=str(number)) for number in range(8)]
        assert [text(host.answer(id)["result"]) for id in ids[:2]] == ["0", "1"]
        for told in (error(host, id) for id in ids[2:]):
            assert told["code"] == "child_crashed"
            assert told["stderr"][-1] == "faulty: crashed on call 3"
            assert "code 3" in told["message"]
            assert told["subtool"] == "echo"

    def test_answered_calls_make_up_for_crashes(self, serve: Serve, workspace: Path) -> None:
        host = serve(crash=faulty("crashes-on", "2"))
        for _ in range(7):
            assert echo(host, "crash_suite") == "hello"
            assert host.failure("crash_suite", action="call", subtool="echo")["code"] == "child_crashed"
        assert starts(workspace, "crash") == 7

    def test_a_child_that_keeps_failing_is_given_time_and_then_left_alone(
        self, serve: Serve, workspace: Path
    ) -> None:
        host = serve(bad=faulty("exits-at-once"), good=PLAIN)
        codes: list[str] = []
        waits: list[int] = []

        def quarantined() -> bool:
            told = host.failure("bad_suite", action="introspect")
            assert told["retryable"] is True
            if told["code"] != "child_start_failed":
                assert "faulty: giving up" in told["stderr"]
            if not codes or codes[-1] != told["code"]:
                codes.append(told["code"])
                waits.append(told.get("retryAfterMs", 0))
            return bool(told["code"] == "child_quarantined")

        until(quarantined, "it is given up")
        started, backoff = "child_start_failed", "child_backoff"
        # The first failure is forgiven; then the pause doubles, and the fifth ends it.
        assert codes == [started, backoff, started, backoff, started, backoff, started, "child_quarantined"]
        limits = [0, 1000, 0, 2000, 0, 4000, 0, 60_000]
        assert all(limit / 2 <= wait <= limit for wait, limit in zip(waits, limits, strict=True)), waits
        assert starts(workspace, "bad") == 5
        for _ in range(20):
            assert host.failure("bad_suite", action="introspect")["code"] == "child_quarantined"
        assert starts(workspace, "bad") == 5
        assert echo(host, "good_suite") == "hello"

    def test_a_missing_binary_is_not_tried_again_and_again(self, serve: Serve) -> None:
        began = time.monotonic()
        host = serve(missing=["/no/such/program"])
        for _ in range(50):
            told = host.failure("missing_suite", action="introspect")
            assert told["code"] == "command_not_found"
        # One look each two seconds is allowed, for a person may mend it meanwhile.
        assert 1 <= host.stderr.count("child.start_failed") <= 1 + (time.monotonic() - began) / 2

    def test_a_child_that_closes_its_stdout_has_crashed(self, serve: Serve, workspace: Path) -> None:
        host = serve(closes=faulty("closes-stdout"))
        assert host.failure("closes_suite", action="call", subtool="echo")["code"] == "child_crashed"
        assert survivors([psutil.Process(pid) for pid in alive_pids(workspace, "closes")]) == []

    def test_a_child_that_closes_its_stdin_has_crashed(self, serve: Serve, workspace: Path) -> None:
        host = serve(closes=faulty("closes-stdin"))
        assert echo(host, "closes_suite") == "hello"
        (pid,) = recorded(workspace / "closes.pids")
        child = psutil.Process(pid)
        assert host.failure("closes_suite", action="call", subtool="echo")["code"] == "child_crashed"
        assert survivors([child]) == []
        assert echo(host, "closes_suite") == "hello"

    def test_a_child_killed_while_quiet_is_started_anew(self, serve: Serve, workspace: Path) -> None:
        host = serve(plain=PLAIN)
        base: list[str] = []
        for number in range(5):
            serves_again(host, "plain_suite")
            base = base or descriptors(host.process.pid)
            os.kill(recorded(workspace / "plain.pids")[-1], signal.SIGKILL)
            until(lambda number=number: host.stderr.count("child.crashed") > number, "it is noticed")  # type: ignore[misc]
        serves_again(host, "plain_suite")
        assert descriptors(host.process.pid) == base
        assert len(keepers(host.process.pid)) == 1


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def alive_pids(workspace: Path, child: str) -> list[int]:
    return [pid for pid in recorded(workspace / f"{child}.pids") if psutil.pid_exists(pid)]


class TestIdleStop:
    """Children that nobody has called for a while."""

    def test_a_quiet_child_is_stopped_and_started_anew_when_called(
        self, serve: Serve, workspace: Path
    ) -> None:
        host = serve({"timeouts": {"idleMs": 400}}, plain=PLAIN)
        before = descriptors(host.process.pid)
        for number in range(3):
            assert echo(host, "plain_suite") == "hello"
            (keeper,) = keepers(host.process.pid)
            assert survivors([keeper, *tree(keeper.pid)]) == []
            assert starts(workspace, "plain") == number + 1
        # What is left is the socket to the launcher.
        assert len(descriptors(host.process.pid)) == len(before) + 1

    def test_no_child_is_stopped_in_the_middle_of_a_call(self, serve: Serve, workspace: Path) -> None:
        host = serve({"timeouts": {"idleMs": 400}}, busy=faulty("out-of-order", "2"), quiet=PLAIN)
        first = ask(host, "busy_suite", message="first")
        for _ in range(2):  # twice its time passes
            echo(host, "quiet_suite")
            quiet = psutil.Process(recorded(workspace / "quiet.pids")[-1])
            assert survivors([quiet]) == []
        second = ask(host, "busy_suite", message="second")
        assert text(host.answer(first)["result"]) == "first"
        assert text(host.answer(second)["result"]) == "second"
        assert starts(workspace, "busy") == 1

    def test_a_call_that_comes_during_the_stop_is_served(self, serve: Serve, workspace: Path) -> None:
        host = serve({"timeouts": {"idleMs": 400}}, deaf=faulty("deaf"))
        assert echo(host, "deaf_suite") == "hello"
        (old,) = [psutil.Process(pid) for pid in recorded(workspace / "deaf.pids")]
        until(lambda: "child.idle" in host.stderr, "the stop has begun")
        ids = [ask(host, "deaf_suite", message=str(number)) for number in range(10)]
        assert [text(host.answer(id)["result"]) for id in ids] == [str(number) for number in range(10)]
        assert not alive([old])
        assert starts(workspace, "deaf") == 2


class TestStopLadder:
    """How children are asked to go."""

    def ladder(self, serve: Serve, workspace: Path, after: str) -> str:
        """What a child notes that runs `after` when its input has ended."""
        note = workspace / "note"
        trap = f"trap 'echo TERM >> {note}; exit' TERM"
        host = serve(noting=["sh", "-c", f"{trap}; {shlex.join(PLAIN)}; echo EOF >> {note}; {after}"])
        echo(host, "noting_suite")
        host.hang_up()
        assert host.wait() == 0
        return note.read_text()

    def test_a_child_that_heeds_the_end_of_its_input_gets_no_signal(
        self, serve: Serve, workspace: Path
    ) -> None:
        assert self.ladder(serve, workspace, "true") == "EOF\n"

    def test_a_child_that_does_not_is_terminated(self, serve: Serve, workspace: Path) -> None:
        assert self.ladder(serve, workspace, "while :; do sleep 0.02; done") == "EOF\nTERM\n"

    def test_a_child_deaf_to_both_is_gone_when_switchboard_is(self, serve: Serve, workspace: Path) -> None:
        host = serve(deaf=faulty("deaf"), other=faulty("deaf"))
        echo(host, "deaf_suite")
        echo(host, "other_suite")
        everybody = tree(host.process.pid)
        host.hang_up()
        assert host.wait() == 0
        assert not alive(everybody)

    def test_calls_under_way_are_told_of_a_stop(self, serve: Serve) -> None:
        host = serve(late=faulty("late", os.devnull), starting=faulty("never-answers"))
        echo(host, "late_suite")
        running, waiting = ask(host, "late_suite", "late"), ask(host, "starting_suite")
        host.request("ping")
        host.process.terminate()
        assert error(host, running)["code"] == "shutting_down"
        assert error(host, waiting)["code"] == "shutting_down"
        assert host.wait() == 0

    def test_a_host_that_hangs_up_still_gets_its_answers(self, serve: Serve) -> None:
        host = serve(slow=faulty("slow-start", "0.3"))
        ids = [ask(host, "slow_suite", message=str(number)) for number in range(10)]
        host.hang_up()
        assert [text(host.answer(id)["result"]) for id in ids] == [str(number) for number in range(10)]
        assert host.wait() == 0


class TestBackpressure:
    """Whoever does not read holds up himself alone, and fills nobody's memory."""

    def quiet(self, host: Host) -> None:
        """Wait until Switchboard neither reads nor writes any more."""
        last: list[str] = []

        def unchanged() -> bool:
            last.append(Path(f"/proc/{host.process.pid}/io").read_text())
            return len(last) > 20 and len(set(last[-20:])) == 1

        until(unchanged, "nothing moves any more")

    def test_a_host_that_does_not_read_loses_nothing_and_costs_little(self, serve: Serve) -> None:
        total = 20_000
        host = serve(counts=faulty("counts", str(total), "2000"))
        echo(host, "counts_suite")
        before = memory_mib(host.process.pid)
        id = ask(host, "counts_suite", "count", message="done")
        self.quiet(host)
        assert memory_mib(host.process.pid) - before < 24
        assert text(host.answer(id)["result"]) == "done"
        numbers = [told["data"]["number"] for told in host.notifications("notifications/message")]
        assert numbers == list(range(total))
        assert memory_mib(host.process.pid) - before < 32

    def test_a_host_that_dies_without_having_read_takes_everybody_with_it(self, serve: Serve) -> None:
        host = serve(flood=faulty("floods"))
        ask(host, "flood_suite")
        self.quiet(host)
        everybody = tree(host.process.pid)
        assert host.process.stdout is not None
        host.process.stdout.close()
        host.hang_up()
        assert host.wait() == 0
        assert survivors(everybody) == []

    def test_a_host_that_hangs_up_without_reading_on_ends_it(self, serve: Serve) -> None:
        host = serve(flood=faulty("floods"), plain=PLAIN)
        ask(host, "flood_suite")
        for _ in range(3):
            host.notification("notifications/message")
            assert echo(host, "plain_suite") == "hello"
        self.quiet(host)
        host.hang_up()
        assert host.wait() == 0

    @pytest.mark.parametrize("how", ["requests", "changes", "logs", "line", "stderr"])
    def test_a_child_that_floods_costs_little(self, serve: Serve, how: str) -> None:
        host = serve(flood=faulty("floods", how), plain=PLAIN)
        echo(host, "plain_suite")
        before = memory_mib(host.process.pid)
        id = ask(host, "flood_suite")
        until(lambda: read_bytes(host) > 48 << 20, "the flood runs")
        # A line without end is kept up to the limit of a message.
        assert memory_mib(host.process.pid) - before < (160 if how == "line" else 24)
        assert echo(host, "plain_suite") == "hello"
        host.notify("notifications/cancelled", {"requestId": id})

    def test_a_child_that_does_not_read_is_refused_and_holds_up_nobody(
        self, serve: Serve, workspace: Path
    ) -> None:
        config = {"suites": {"stuck": {"rpcMs": 1500}}}
        host = serve(config, stuck=faulty("stops-reading", "3"), plain=PLAIN)
        host.introspect("stuck_suite")
        payload = "z" * (2 << 20)
        ids = [ask(host, "stuck_suite", message=payload) for _ in range(60)]
        assert echo(host, "plain_suite") == "hello"
        codes = collections.Counter(error(host, id)["code"] for id in ids)
        assert set(codes) == {"child_busy", "child_timeout"}
        assert codes["child_busy"] >= 10
        assert memory_mib(host.process.pid) < 250
        assert echo(host, "plain_suite") == "hello"


def read_bytes(host: Host) -> int:
    """How much Switchboard has read so far."""
    return int(Path(f"/proc/{host.process.pid}/io").read_text().split("rchar:")[1].split()[0])


class TestHandshake:
    """Getting to know a child, and hearing of its changes."""

    def test_every_page_of_tools_is_asked_for(self, serve: Serve) -> None:
        host = serve(pages=faulty("paginated", "3", "10"))
        assert host.subtools("pages_suite") == [f"tool_{number}" for number in range(10)]

    def test_pages_without_end_come_to_one(self, serve: Serve) -> None:
        host = serve(endless=faulty("endless-pages"))
        assert host.subtools("endless_suite") == ["echo"]
        assert echo(host, "endless_suite") == "hello"

    def test_changed_tools_are_listed_anew_and_the_host_is_told(self, serve: Serve) -> None:
        host = serve(changes=faulty("list-changed"))
        for number in range(1, 4):
            echo(host, "changes_suite")
            host.notification("notifications/tools/list_changed")
            assert host.subtools("changes_suite") == ["echo", f"after_{number}"]

    def test_what_a_child_asks_is_answered(self, serve: Serve, workspace: Path) -> None:
        host = serve(asks=faulty("asks-back"))
        heard = host.call("asks_suite", "echo")["structuredContent"]["heard"]
        ping, roots, odd = heard
        assert ping["result"] == {}
        assert roots["result"]["roots"][0]["uri"] == workspace.resolve().as_uri()
        assert odd["error"]["code"] == -32601
        assert [message["id"] for message in (roots, odd)] == ["roots", "odd"]

    def test_the_start_limit_holds_for_all_pages_together(self, serve: Serve, workspace: Path) -> None:
        config = {"timeouts": {"childSpawnMs": 400, "rpcMs": 400}}
        host = serve(config, slow=faulty("slow-pages", "0.15"))
        told = host.failure("slow_suite", action="introspect")
        assert told["code"] == "child_start_timeout"

    def test_a_start_that_fails_fails_all_who_wait_for_it_and_once(
        self, serve: Serve, workspace: Path
    ) -> None:
        host = serve(bad=faulty("exits-at-once", "9"))
        ids = [ask(host, "bad_suite") for _ in range(30)]
        codes = collections.Counter(error(host, id)["code"] for id in ids)
        assert set(codes) <= {"child_start_failed", "child_backoff"}
        assert starts(workspace, "bad") <= 2


def test_without_descriptors_left_a_start_fails_and_leaks_none(workspace: Path) -> None:
    names = [f"child{number}" for number in range(8)]
    for name in names:
        add_child(workspace, name, PLAIN)
    with Host(["sh", "-c", f"ulimit -n 32; exec {shlex.join(SWITCHBOARD)}"], cwd=workspace) as host:
        host.initialize()
        served: list[str] = []
        failed: list[str] = []
        for name in names:
            result = host.call(f"{name}_suite", "echo", message=name)
            (failed if result.get("isError") else served).append(name)
        assert served
        assert failed
        before = descriptors(host.process.pid)
        for _ in range(3):
            told = host.failure(f"{failed[0]}_suite", action="introspect")
            assert told["code"] in ("child_start_failed", "child_backoff")
            assert "Too many open files" in told["message"]
        assert [echo(host, f"{name}_suite", name) for name in served] == served
        assert descriptors(host.process.pid) == before
