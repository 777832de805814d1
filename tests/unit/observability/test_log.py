from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.errors import failure
from switchboard_mcp.observability.log import MAX_LINE, Log, Style, stderr_writer
from switchboard_mcp.redaction.redactor import Redactor
from tests.cases import each_case
from tests.patience import PATIENCE_S

NOON = 1_700_049_601.25


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def make(lines: list[bytes], style: Style = "text", **options: Any) -> Log:
    options.setdefault("redactor", Redactor())
    return Log("debug", style, write=lines.append, clock=lambda: NOON, **options)


def one(style: Style, event: str, **fields: object) -> str:
    lines: list[bytes] = []
    make(lines, style).warning(event, **fields)
    (line,) = lines
    assert line.endswith(b"\n")
    assert len(line) <= MAX_LINE
    return line[:-1].decode()


def test_a_text_line_is_time_level_event_and_fields() -> None:
    line = one("text", "child.exited", child="git", code=1, ok=False, last=None, ms=12.345678901)
    assert line == "12:00:01 warning child.exited child=git code=1 ok=false last=null ms=12.3457"


def test_a_json_line_is_one_object() -> None:
    line = one("json", "child.exited", child="git", code=1, deep={"a": [1, None]})
    assert line == (
        '{"time":"2023-11-15T12:00:01.250Z","level":"warning","event":"child.exited",'
        '"child":"git","code":1,"deep":{"a":[1,null]}}'
    )


def test_fields_that_collide_with_the_head_keep_their_value() -> None:
    line = json.loads(one("json", "e", level_="x", time="mine"))
    assert (line["time_"], line["level"], line["level_"]) == ("mine", "warning", "x")


@each_case(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("a=b", '"a=b"'),
        ("line\nbreak\r\t", "line\\nbreak\\r\\t"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("\u202egnp", "\\u202egnp"),
        ("\x9b", "\\u009b"),
        ("\ud800", "\\ud800"),
        ("ünïcode…", "ünïcode…"),
        (b"bytes", "bytes"),
        (ValueError("wrong"), '"ValueError: wrong"'),
        (KeyError(), "KeyError"),
        ([1, "a b"], '[1,"a b"]'),
        ({"a": "\x9b"}, '{"a":"\\u009b"}'),
        (2**80, str(2**80)),
        ({1: (2, 3)}, '{"1":[2,3]}'),
    ],
)
def test_a_value_is_shown_on_one_line_without_control_characters(value: object, shown: str) -> None:
    assert one("text", "e", v=value) == f"12:00:01 warning e v={shown}"


def test_event_and_names_are_escaped_too() -> None:
    assert one("text", "a\nb", **{"c\nd": 1}) == "12:00:01 warning a\\nb c\\nd=1"


def test_a_failure_is_shown_with_what_it_holds() -> None:
    problem = failure("internal", "broken", schema=msgspec.Raw(b'{"type":"object"}'))
    assert json.loads(one("json", "e", problem=problem))["problem"]["schema"] == {"type": "object"}


def test_a_value_that_cannot_be_shown_does_not_break_the_line() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

    assert one("text", "e", v=Hostile()) == "12:00:01 warning e v=<Hostile>"


@each_case("style", ["text", "json"])
def test_secrets_are_masked_in_event_names_and_values(style: Style) -> None:
    redactor = Redactor()
    redactor.register("s3same-open")
    lines: list[bytes] = []
    log = make(lines, style, redactor=redactor).bind(header="Authorization: Bearer abc123")
    log.info(
        "saw s3same-open", token="abc123", error=ValueError("password=abc123"), env={"MY_SECRET": "abc123"}
    )
    assert b"s3same" not in lines[0]
    assert b"abc123" not in lines[0]


def test_redaction_looks_like_this() -> None:
    line = one(
        "text", "child.env", token="x", budgetTokens=1200, env={"API_KEY": "x", "A": "b"}, url="http://u:p@h"
    )
    assert line == (
        "12:00:01 warning child.env token=[redacted] budgetTokens=1200 "
        'env={"API_KEY":"[redacted]","A":"b"} url=http://u:[redacted]@h'
    )


def test_levels_below_the_threshold_are_not_written() -> None:
    lines: list[bytes] = []
    log = Log("warning", write=lines.append, clock=lambda: NOON)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line.split()[2] for line in lines] == [b"c", b"d"]
    assert (log.enabled("info"), log.enabled("warning")) == (False, True)


def test_bound_fields_stand_on_every_line_and_the_first_log_is_unchanged() -> None:
    lines: list[bytes] = []
    log = make(lines)
    bound = log.bind(child="git", code=1).bind(code=2)
    bound.info("a", more=3)
    log.info("b")
    assert lines == [b"12:00:01 info a child=git code=2 more=3\n", b"12:00:01 info b\n"]


def test_the_listener_sees_what_a_line_is_about_and_the_line_does_not_show_it() -> None:
    lines: list[bytes] = []
    log, subject = make(lines), object()
    seen: list[object] = []
    log.sink.listener = lambda record: seen.append(record.subject)
    log.about(subject).bind(more=1).info("one")
    log.info("two")
    assert seen == [subject, None]
    assert b"object" not in b"".join(lines)


def test_colour_comes_only_when_asked_for() -> None:
    lines: list[bytes] = []
    make(lines, colour=True).error("e")
    assert lines == [b"12:00:01 \x1b[31merror\x1b[0m e\n"]


def test_a_long_text_line_is_cut_between_characters() -> None:
    line = one("text", "e", v="é" * 5000)
    assert line.endswith("é…")


@given(
    st.dictionaries(st.text(max_size=200), st.text() | st.integers() | st.just("é\x00" * 3000), max_size=60)
)
def test_a_json_line_is_valid_and_bounded_whatever_it_holds(fields: dict[str, object]) -> None:
    fields = {name: value for name, value in fields.items() if name not in ("self", "event")}
    line = one("json", "event", **fields)
    assert json.loads(line)["event"] == "event"
    assert line.isprintable()


@given(st.text(), st.text() | st.floats() | st.lists(st.text()))
def test_a_text_line_is_one_printable_line_whatever_it_holds(event: str, value: object) -> None:
    assert one("text", event, v=value).isprintable()


def test_a_long_json_line_keeps_its_short_fields() -> None:
    line = json.loads(one("json", "e", child="git", text="x" * 10_000, deep=["y" * 10_000]))
    assert line["child"] == "git"
    assert line["clipped"] is True
    assert line["text"].endswith("x…")


def test_lines_that_were_dropped_are_counted_on_the_next_one() -> None:
    lines: list[bytes] = []
    answers = iter([False, False, True, True])

    def write(line: bytes) -> bool:
        lines.append(line)
        return next(answers)

    log = Log(write=write, clock=lambda: NOON)
    log.info("a")
    log.bind(x=1).info("b")
    log.info("c")
    log.info("d")
    assert lines[2:] == [b"12:00:01 info c dropped=2\n", b"12:00:01 info d\n"]


def test_the_count_survives_in_json_where_everything_else_is_cut() -> None:
    answers = iter([False, True])
    lines: list[bytes] = []

    def write(line: bytes) -> bool:
        lines.append(line)
        return next(answers)

    log = Log(style="json", write=write, clock=lambda: NOON)
    log.info("a")
    log.info("b", **{f"f{index}": "x" * 100 for index in range(500)})
    assert json.loads(lines[1])["dropped"] == 1


def test_a_full_pipe_drops_lines_and_never_blocks() -> None:
    reader, writer = os.pipe()
    try:
        write = stderr_writer(writer)
        line = b"x" * (MAX_LINE - 1) + b"\n"
        written = 0
        while write(line):
            written += 1
        assert written >= 1
        size = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
        assert written * MAX_LINE <= size
        os.read(reader, size)
        assert write(line)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_reader_that_is_gone_drops_lines_without_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert stderr_writer(writer)(b"x\n") is False
    finally:
        os.close(writer)


def test_a_closed_descriptor_drops_lines_without_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    assert stderr_writer(writer)(b"x\n") is False


def test_after_a_torn_line_the_next_one_starts_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    real = os.write
    try:
        write = stderr_writer(writer)
        monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
        write(b"abcdef\n")
        monkeypatch.setattr(os, "write", real)
        write(b"next\n")
        write(b"last\n")
        assert os.read(reader, 100) == b"abc\nnext\nlast\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_lines_go_to_stderr_unless_told_otherwise() -> None:
    program = "from switchboard_mcp.observability.log import Log; Log().info('hello', a=1)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert done.stdout == ""
    assert done.stderr.endswith(" info hello a=1\n")
