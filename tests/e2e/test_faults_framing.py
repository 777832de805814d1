"""Children that write oddly, and what a host gets of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.e2e.faults import Serve, ask, check_answers, echo, error, starts, text
from tests.e2e.host import Host, switchboard
from tests.e2e.stress import (
    PLAIN,
    next_line,
)
from tests.e2e.workspaces import WHOLE_RESULTS, add_child, configure, faulty

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
    configure(folder, WHOLE_RESULTS)
    with switchboard(folder, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}) as host:
        host.initialize()
        yield host
        host.close()
        check_answers(host)


class TestFraming:
    """What comes out of a child's stdout besides plain lines."""

    @each_case("mode", ODD_WRITERS)
    def test_a_child_is_understood_however_it_writes(self, odd: Host, mode: str) -> None:
        ids = [ask(odd, f"{mode}_suite", message=f"é {number}") for number in range(5)]
        assert [text(odd.answer(id)["result"]) for id in ids] == [f"é {number}" for number in range(5)]

    def test_bytes_that_are_not_utf8_are_replaced_and_the_rest_stays(self, serve: Serve) -> None:
        host = serve(invalid=faulty("invalid-utf8"))
        assert text(host.call("invalid_suite", "echo")).startswith("caf\ufffd")
        assert text(host.call("invalid_suite", "echo")).endswith(" end")

    def test_a_result_of_64_mib_passes(self, serve: Serve, workspace: Path) -> None:
        configure(workspace, WHOLE_RESULTS)
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

    def test_a_message_to_a_child_may_be_as_large(self, serve: Serve, workspace: Path) -> None:
        configure(workspace, WHOLE_RESULTS)
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
