from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.mail.terminal.input_safety import (
    MAX_TYPED_BYTES,
    PASTE_BEGINS,
    PASTE_ENDS,
    InputRateLimit,
    Keyboard,
    ScreenState,
    to_keystrokes,
)
from tests.cases import each_case


@each_case(
    ("text", "bracketed", "keys"),
    [
        ("make test", False, b"make test"),
        ("make test\n\n", False, b"make test"),
        ("make test\r\n", False, b"make test"),
        ("größe", False, "größe".encode()),
        ("ls", True, b"\x1b[200~ls\x1b[201~"),
        ("one\n\ttwo\n", True, b"\x1b[200~one\r\ttwo\x1b[201~"),
    ],
)
def test_text_is_typed_as_it_is_and_lines_are_pasted(text: str, bracketed: bool, keys: bytes) -> None:
    assert to_keystrokes(text, bracketed=bracketed) == keys


@each_case("bracketed", [False, True])
@each_case(
    ("text", "expected"),
    [
        ("", "nothing to type"),
        (" \n", "nothing to type"),
        ("a\x1b[201~b", "U+001B"),
        ("a\x03", "U+0003"),
        ("a\rb", "U+000D"),
        ("a\x00b", "U+0000"),
        ("a\x7f", "U+007F"),
        ("a\x9b31m", "U+009B"),
        ("a\u202eb", "U+202E"),
        ("a\u200bb", "U+200B"),
        ("a\u2028b", "U+2028"),
        ("a\ud800", "U+D800"),
        ("x" * (MAX_TYPED_BYTES + 1), "bytes"),
    ],
)
def test_a_message_with_more_than_text_is_not_typed(text: str, bracketed: bool, expected: str) -> None:
    refused = to_keystrokes(text, bracketed=bracketed)
    assert isinstance(refused, str)
    assert expected in refused


# Unicode's DerivedCoreProperties.txt 15.1, Default_Ignorable_Code_Point.
IGNORABLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
# Drawn as nothing or as a space, though not ignorable.
BLANK = (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x2800, 0x3000, 0xFFFC, 0x16FE4, 0x1D159)


def test_no_invisible_character_of_unicode_is_typed_wherever_it_stands() -> None:
    codes = [code for first, last in IGNORABLE for code in range(first, last + 1)] + list(BLANK)
    codes += [code for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp")]
    for code in set(codes) - {0x09, 0x0A}:
        for text in (f"ls {chr(code)}", f"{chr(code)}ls", f"l{chr(code)}s"):
            expected = f"it contains the invisible character U+{code:04X}"
            found = to_keystrokes(text, bracketed=True)
            assert found in (expected, "there is nothing to type"), hex(code)


def test_every_letter_digit_mark_and_visible_symbol_is_typed() -> None:
    hidden = {code for first, last in IGNORABLE for code in range(first, last + 1)} | set(BLANK)
    for code in range(0x21, 0x110000):
        if code not in hidden and unicodedata.category(chr(code))[0] in "LNPSM":
            assert isinstance(to_keystrokes(chr(code), bracketed=False), bytes), hex(code)


def test_several_lines_and_tabs_go_only_to_a_program_that_takes_pasted_text() -> None:
    assert "several lines" in str(to_keystrokes("a\nb", bracketed=False))
    assert "tab" in str(to_keystrokes("a\tb", bracketed=False))


@given(st.text(), st.booleans())
def test_nothing_that_is_typed_leaves_the_paste_or_presses_a_key(text: str, bracketed: bool) -> None:
    keys = to_keystrokes(text, bracketed=bracketed)
    if isinstance(keys, str):
        return
    inner = keys.removeprefix(PASTE_BEGINS).removesuffix(PASTE_ENDS) if bracketed else keys
    allowed = b"\t\r" if bracketed else b""
    assert all(byte >= 32 or byte in allowed for byte in inner)
    assert 127 not in inner


def watched(*pieces: bytes) -> ScreenState:
    found = ScreenState()
    for piece in pieces:
        found.feed(piece)
    return found


SCREENS = [
    (b"\x1b[?2004h$ ", False, True, True),
    (b"\x1b[?2004h$ ls\r\n\x1b[?2004l\r", False, False, True),
    (b"\x1b[?1049h\x1b[22;0;0t", True, False, True),
    (b"\x1b[?1049h\x1b[?1;2004h\x1b[?1049l", False, True, True),
    (b"\x1b[?1049h\x1bc", False, False, True),
    (b"\x1b]0;a [?1049h title\x07$ ", False, False, True),
    (b"text \x1b[3", False, False, False),
    (b"text \x1b]0;half", False, False, False),
    ("ä".encode()[:1], False, False, False),
    ("ä€😀".encode(), False, False, True),
]


@each_case(("data", "alternate", "bracketed", "boundary"), SCREENS)
def test_modes_are_known_from_what_passes_in_whatever_pieces(
    data: bytes, alternate: bool, bracketed: bool, boundary: bool
) -> None:
    for found in (watched(data), watched(*(bytes([byte]) for byte in data)), watched(data[:4], data[4:])):
        assert (found.alternate, found.bracketed, found.at_boundary) == (alternate, bracketed, boundary)


@each_case(
    ("data", "prompt"),
    [
        (b"out\r\n$ ", b"$ "),
        (b"\x1b[?2004h\x1b]0;t\x07\x1b[1;32mme\x1b[0m$ ", b"\x1b[?2004h\x1b]0;t\x07\x1b[1;32mme\x1b[0m$ "),
        (b"\r\n", b""),
        (b"\x1b[?1049h$ ", None),  # another screen
        (b"\x1b[2A$ ", None),  # something that is drawn
        (b"\x1b[5;1H$ ", None),
        (b"x" * 80, None),  # wrapped
        (b"x" * 10_000, None),
        (b"$ \x1b[", None),
        (b"$ \x08", None),
    ],
)
def test_a_prompt_is_written_again_only_where_that_is_sure_to_be_right(
    data: bytes, prompt: bytes | None
) -> None:
    assert watched(data).prompt(80) == prompt


@each_case(
    ("keys", "quiet_s", "free"),
    [
        (b"", 0.0, True),
        (b"ls", 5.0, False),
        (b"ls\r", 0.5, False),
        (b"ls\r", 2.0, True),
        (b"ls\x03", 2.0, True),
        (b"ls\x15", 2.0, True),
        (b"\x1b[A\x1b[200~", 0.0, True),
        (b"\x1b[200~pasted\x1b[201~", 5.0, False),
        (b"y", 200.0, True),
    ],
)
def test_nothing_is_typed_into_a_line_that_somebody_is_typing(
    keys: bytes, quiet_s: float, free: bool
) -> None:
    keyboard = Keyboard()
    if keys:
        keyboard.feed(keys, 100.0)
    assert keyboard.is_free(100.0 + quiet_s) is free


def test_an_allowance_is_used_up_and_comes_back() -> None:
    allowance = InputRateLimit(2, 10.0)
    assert [allowance.take(now) for now in (0.0, 1.0, 2.0, 9.9, 10.0, 10.5, 11.0)] == [
        True,
        True,
        False,
        False,
        True,
        False,
        True,
    ]
