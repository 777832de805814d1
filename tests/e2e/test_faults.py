"""Children that misbehave, as real processes: what a host gets, and that Switchboard and the other children live on.

One class of tests for each class of fault. Whatever happens, every request is answered once, or was cancelled.
"""

from __future__ import annotations

import collections
import json
import shlex
from pathlib import Path

import pytest

from tests.e2e.faults import Serve, ask, echo, error, lines, starts, text
from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.stress import (
    PLAIN,
    descriptors,
    memory_mib,
    survivors,
    tree,
    until,
)
from tests.e2e.workspaces import add_child, faulty


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


class TestBackpressure:
    """Whoever does not read holds up himself alone, and fills nobody's memory."""

    def quiet(self, host: Host) -> None:
        """Wait until Switchboard neither reads nor writes any more."""
        last: list[str] = []

        def unchanged() -> bool:
            last.append(Path(f"/proc/{host.process.pid}/io").read_text())
            return len(last) > 20 and len(set(last[-20:])) == 1

        until(unchanged, "nothing moves any more")

    def test_a_host_that_does_not_read_gets_its_answer_and_the_count_of_dropped_log_messages(
        self, serve: Serve
    ) -> None:
        total = 5_000
        host = serve(counts=faulty("counts", str(total), "2000"))
        echo(host, "counts_suite")
        before = memory_mib(host.process.pid)
        id = ask(host, "counts_suite", "count", message="done")
        self.quiet(host)
        assert memory_mib(host.process.pid) - before < 8
        assert text(host.answer(id)["result"]) == "done"
        numbers, dropped = list[int](), 0
        while len(numbers) + dropped < total:
            message = host.notification("notifications/message")
            if message.get("logger") == "switchboard":
                dropped += int(message["data"].split(" ")[0].replace(",", ""))
            else:
                numbers.append(message["data"]["number"])
        assert numbers == sorted(set(numbers))
        assert len(numbers) + dropped == total
        assert memory_mib(host.process.pid) - before < 8

    def test_a_host_that_dies_without_having_read_takes_everybody_with_it(self, serve: Serve) -> None:
        host = serve(flood=faulty("floods"))
        ask(host, "flood_suite")
        until(lambda: read_bytes(host) > 2 << 20, "the flood runs")
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
        until(lambda: read_bytes(host) > 2 << 20, "the flood runs")
        host.hang_up()
        assert host.wait() == 0

    @pytest.mark.parametrize("how", ["requests", "changes", "logs", "line", "stderr"])
    def test_a_child_that_floods_costs_little(self, serve: Serve, how: str) -> None:
        host = serve(flood=faulty("floods", how), plain=PLAIN)
        echo(host, "plain_suite")
        before = memory_mib(host.process.pid)
        id = ask(host, "flood_suite")
        until(lambda: read_bytes(host) > 16 << 20, "the flood runs")
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


@pytest.mark.usefixtures("alone")  # counts the descriptors of this process
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
