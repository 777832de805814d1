from __future__ import annotations

import io
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.cli.console import (
    Console,
    Screen,
    Styled,
    fit_columns,
    one_line,
    truncate,
    use_colour,
    visible_width,
    wrap,
    wrap_line,
)
from switchboard_mcp.cli.index import COMMANDS
from switchboard_mcp.cli.main import dispatch
from switchboard_mcp.errors import failure
from tests.cases import each_case

# Everything that a terminal interprets, apart from tab and newline.
OBEYED = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(columns: int = 80) -> Screen:
    return Screen(Terminal(), {"COLUMNS": str(columns), "TERM": "xterm"})


def pipe() -> Screen:
    return Screen(io.StringIO(), {})


def written(screen: Screen) -> str:
    shown: str = screen.stream.getvalue()
    return shown


@each_case(
    ("is_terminal", "environ", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"CLICOLOR_FORCE": "1"}, True),
        (False, {"CLICOLOR_FORCE": "0"}, False),
        (False, {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_terminals_and_for_those_who_ask(
    is_terminal: bool, environ: dict[str, str], expected: bool
) -> None:
    assert use_colour(is_terminal, environ) is expected


@each_case(("text", "width"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("…", 1), ("👩\u200d💻", 4), ("", 0)])
def test_width_is_what_a_terminal_shows(text: str, width: int) -> None:
    assert visible_width(text) == width


@each_case(
    ("text", "width", "expected"),
    [("short", 5, "short"), ("too long", 5, "too…"), ("日本語", 4, "日…"), ("ab", 1, "…")],
)
def test_a_text_is_cut_to_its_columns(text: str, width: int, expected: str) -> None:
    assert truncate(text, width) == expected


def test_one_line_holds_nothing_a_terminal_obeys() -> None:
    assert one_line("a\n  b\tc\x1b[31m\x9b1m") == "a b c\ufffd[31m\ufffd1m"


def test_a_pipe_gets_plain_text_and_all_of_it() -> None:
    screen = pipe()
    screen.text("\x1b[31mred", "green")
    screen.table([("name", "x" * 300)])
    assert written(screen) == f"\x1b[31mred\nname  {'x' * 300}\n"


def test_a_terminal_gets_no_orders_from_a_text() -> None:
    screen = terminal()
    screen.text("\x1b[31mred\x07\r\ndone\tok")
    assert written(screen) == "\ufffd[31mred\ufffd\ndone\tok\n"


@given(st.text(st.characters(codec="utf-8")))
def test_only_our_own_styling_reaches_the_terminal(text: str) -> None:
    screen, console = terminal(), Console(Terminal(), Terminal(), {"TERM": "xterm"})
    for hostile in (text, f"a\x1b[31m{text}\x9b2J\u202eb\r\x08"):
        screen.line(f"{screen.paint('painted', 'bold red')} {hostile}", "dim")
        screen.text(hostile, "cyan")
        screen.prose(hostile)
        screen.entry(hostile, hostile, "green")
        screen.table([(hostile, Styled(hostile, "yellow"))], header=("a", "b"))
        screen.json({hostile: [hostile]})
        screen.json_line({hostile: [hostile]})
        screen.stream.write(hostile)
        console.show_failure(failure("usage", hostile, hint=hostile))
        console.warn(hostile)
    for shown in (written(screen), written(console.err)):
        assert re.search(f"[{OBEYED}]", re.sub(r"\x1b\[[0-9;]*m", "", shown)) is None
        assert set(re.findall(r"\x1b\[([0-9;]*)m", shown)) <= {"0", "1;31", "2", "36", "32", "33"}


def test_a_style_cannot_be_forged() -> None:
    screen = terminal()
    screen.line("\x1b[7mreversed\x1b[0m \x1b0123456789abcdef[7m")
    assert "\x1b" not in written(screen)


@each_case("text", ["\x9b", "\u202e", "\x7f", "\u2066"])
def test_json_on_a_terminal_means_the_same(text: str) -> None:
    screen = terminal()
    screen.json_line({"value": text})
    assert text not in written(screen)
    assert msgspec.json.decode(written(screen)) == {"value": text}


def plain(screen: Screen) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", written(screen)).splitlines()


def test_columns_of_a_table_line_up_and_cells_are_wrapped_to_fit_the_terminal() -> None:
    screen = terminal(24)
    screen.table([("日本", "what it means, at length"), ("abcdef", Styled("b", "red"))], header=("N", "M"))
    assert plain(screen) == ["N       M", "日本    what it means,", "        at length", "abcdef  b"]


def test_a_cell_of_one_line_is_cut() -> None:
    screen = terminal(24)
    screen.table([("name", "what it means, at length"), ("abcdef", "b")], cell_lines=1)
    assert plain(screen) == ["name    what it means,…", "abcdef  b"]


def test_the_least_useful_column_goes_first() -> None:
    row = ("name", "x" * 30, "y" * 30, "1,234")
    for columns, expected in ((100, [0, 1, 2, 3]), (60, [0, 1, 3]), (30, [0, 3])):
        kept = fit_columns([len(cell) for cell in row], columns, "lllr", (2, 1))
        assert list(kept) == expected


@given(
    st.lists(st.integers(0, 3_000), min_size=1, max_size=8),
    st.integers(20, 200),
    st.text("lr", max_size=8),
    st.sets(st.integers(0, 7)),
)
def test_columns_always_fit(widths: list[int], width: int, align: str, optional: set[int]) -> None:
    droppable = [column for column in optional if 0 < column < len(widths)]
    kept = fit_columns(widths, width, align, droppable)
    assert sum(kept.values()) + 2 * (len(kept) - 1) <= width
    if len(widths) * 4 <= width:
        assert set(range(len(widths))) - set(kept) <= set(droppable)


@given(st.text(max_size=200), st.integers(4, 80), st.integers(1, 5))
def test_a_wrapped_cell_fits_and_says_if_it_was_cut(text: str, width: int, lines: int) -> None:
    text = one_line(text)
    wrapped = wrap(text, width, lines)
    assert len(wrapped) <= lines
    assert all(visible_width(line) <= width for line in wrapped)
    if wrapped[-1].endswith("…") and not text.endswith("…"):
        assert visible_width(text) > width
    else:
        assert "".join("".join(wrapped).split()) == "".join(text.split())


def test_a_long_line_is_wrapped_under_its_second_column_and_a_path_is_left_whole() -> None:
    path = "/" + "p" * 50
    assert wrap_line("  --flag  what it does, at some length", 30) == [
        "  --flag  what it does, at",
        "          some length",
    ]
    assert wrap_line(f"See {path} now", 30) == ["See", f"  {path}", "  now"]
    painted = terminal().paint("red words", "red")
    assert wrap_line(f"{painted} that go on and on", 20) == [
        f"{painted} that go on",
        "  and on",
    ]


@each_case("columns", [60, 80, 100])
@each_case("name", ["", "mail", *COMMANDS])
def test_every_help_fits_the_terminal(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    console = Console(Terminal(), Terminal(), {"COLUMNS": str(columns), "TERM": "xterm"})
    dispatch([*name.split(), "--help"], console)
    assert [
        line for line in plain(console.out) if visible_width(line) > columns and len(line.split()) > 1
    ] == []


def test_a_paragraph_of_help_is_wrapped_at_the_margin_and_a_command_hangs() -> None:
    console = Console(Terminal(), Terminal(), {"COLUMNS": "30", "TERM": "xterm"})
    console.out.help(
        "A sentence that is longer than the line.\n\nusage: switchboard add NAME -- CMD [ARGS …]\n\n"
        "  --flag\n            what it does, at length\n\n  switchboard add memory -- npx -y package\n"
    )
    assert plain(console.out) == [
        "A sentence that is longer than",
        "the line.",
        "",
        "usage: switchboard add NAME --",
        "  CMD [ARGS …]",
        "",
        "  --flag",
        "            what it does, at",
        "            length",
        "",
        "  switchboard add memory --",
        "    npx -y package",
    ]


def test_an_entry_is_wrapped_under_its_name() -> None:
    screen = terminal(20)
    screen.entry("tool", "(first: string, second: number)", "cyan", "  ")
    lines = written(screen).splitlines()
    assert lines[0] == "  \x1b[36mtool\x1b[0m(first:"
    assert all(line.startswith("      ") and len(line) <= 20 for line in lines[1:])
    assert len(lines) > 2


def test_prose_keeps_its_lines_and_wraps_them_on_a_terminal_only() -> None:
    text = "one two three four five six seven\n\nend"
    narrow, plain = terminal(24), pipe()
    narrow.prose(text, "  ")
    plain.prose(text, "  ")
    assert written(narrow).splitlines() == ["  one two three four", "  five six seven", "", "  end"]
    assert written(plain).splitlines() == ["  one two three four five six seven", "", "  end"]


def test_json_is_one_line_in_a_pipe_and_indented_on_a_terminal() -> None:
    screen, shown = pipe(), terminal()
    screen.json({"a": [1, "ü"]})
    shown.json(b'{"a":[1,"\xc2\x9b"]}')
    assert written(screen) == '{"a":[1,"ü"]}\n'
    assert written(shown).startswith('{\n  "a": [')
    assert "\x9b" not in written(shown)
    assert msgspec.json.decode(written(shown)) == {"a": [1, "\x9b"]}


def test_json_is_utf8_whatever_the_locale_says() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Screen(stream, {}).json({"a": "ü"})
    stream.flush()
    assert raw.getvalue() == '{"a":"ü"}\n'.encode()


def test_a_complaint_names_the_program_and_the_remedy() -> None:
    err = io.StringIO()
    Console(io.StringIO(), err, {}).show_failure(
        failure("command_not_found", "Child 'x': no such command.", child="x")
    )
    assert err.getvalue().startswith("switchboard: Child 'x': no such command.\nInstall the program")
