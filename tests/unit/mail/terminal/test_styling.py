from __future__ import annotations

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.terminal.styling import (
    COLORS,
    Styling,
    nearest_color,
    parse_styling,
    stored_styling,
    title,
)
from tests.cases import each_case


@each_case(
    ("written", "color"),
    [
        *((name, name) for name in COLORS),
        ("", ""),
        ("Green", "green"),
        ("grey", "gray"),
        ("purple", "magenta"),
        ("#00FF7f", "#00ff7f"),
        ("terminal.ansiGreen", "green"),
        ("terminal.ansiBrightMagenta", "magenta"),
    ],
)
def test_a_color_is_a_name_a_hex_value_or_one_of_the_editor_s(written: str, color: str) -> None:
    assert parse_styling({"color": written}) == stored_styling({"color": written}) == Styling(color=color)


@each_case("icon", ["", "🔧", "❤️", "👩‍💻", "terminal-bash", "=>"])
def test_an_icon_is_an_emoji_or_a_short_word(icon: str) -> None:
    assert parse_styling({"icon": icon}).icon == stored_styling({"icon": icon}).icon == icon


@each_case(
    "written",
    [
        {"color": "greenish"},
        {"color": "#fff"},
        {"color": "red;background:url(x)"},
        {"color": "red\x1b[0m"},
        {"icon": "x" * 17},
        {"icon": "\x1b]2;x\x07"},
        {"icon": "a\u202eb"},
        {"icon": "a\nb"},
        {"colour": "red"},
    ],
)
def test_anything_else_is_refused_and_never_shown(written: dict[str, str]) -> None:
    with pytest.raises(SwitchboardError) as problem:
        parse_styling(written)
    assert problem.value.failure.code == "arguments_invalid"
    assert not stored_styling(written).is_set


@each_case("name", COLORS)
def test_a_value_near_a_color_is_shown_as_that_color_in_a_title(name: str) -> None:
    red, green, blue = COLORS[name][0]
    value = f"#{red:02x}{green:02x}{blue:02x}"
    assert nearest_color(value) == name
    assert title("builder", Styling(color=value)) == f"{COLORS[name][1]} builder"
