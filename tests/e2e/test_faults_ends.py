"""Children that crash, fall idle, or do not want to stop."""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path

import psutil

from tests.e2e.faults import Serve, ask, echo, error, starts, text
from tests.e2e.stress import (
    PLAIN,
    alive,
    descriptors,
    reapers,
    recorded,
    serves_again,
    survivors,
    tree,
    until,
)
from tests.e2e.workspaces import faulty
from tests.processes import living


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

        def quarantined() -> bool:
            told = host.failure("bad_suite", action="introspect")
            assert told["retryable"] is True
            if told["code"] != "child_start_failed":
                assert "faulty: giving up" in told["stderr"]
            codes.append(told["code"])
            return bool(told["code"] == "child_quarantined")

        until(quarantined, "it is given up")
        assert codes[0] == "child_start_failed"
        assert set(codes) == {"child_start_failed", "child_backoff", "child_quarantined"}
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
        assert survivors(living(recorded(workspace / "closes.pids"))) == []

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
        assert len(reapers(host.process.pid)) == 1


class TestIdleStop:
    """Children that nobody has called for a while."""

    def test_a_quiet_child_is_stopped_and_started_anew_when_called(
        self, serve: Serve, workspace: Path
    ) -> None:
        host = serve({"timeouts": {"idleMs": 400}}, plain=PLAIN)
        before = descriptors(host.process.pid)
        for number in range(3):
            assert echo(host, "plain_suite") == "hello"
            (reaper,) = reapers(host.process.pid)
            assert survivors([reaper, *tree(reaper.pid)]) == []
            assert starts(workspace, "plain") == number + 1
        # What is left is the socket to the launcher.
        until(lambda: len(descriptors(host.process.pid)) == len(before) + 1, "all others are closed")

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
