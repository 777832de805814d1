from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

from hypothesis import example, given
from hypothesis import strategies as st

from switchboard_mcp.redaction.redactor import MASK, Redactor
from tests.cases import each_case

SECRETS = [
    "correct-horse-7",
    "p@ss/w+rd?=&é",
    'quo"te\\back\nline',
    "s p a c e",
    "grüße😀x",
    "0123456789abcdefABCDEF",
]


def twice(text: str) -> str:
    return json.dumps(json.dumps(text))


ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda secret: f"x{secret}y",
    "query": lambda secret: f"https://h/p?q=1&k={quote_plus(secret)}&r=2",
    "path": lambda secret: f"https://h/{quote(secret)}/x",
    "percent, lower case": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "percent, twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "user info": lambda secret: f"https://me:{quote(secret, safe='')}@h/",
    "json": lambda secret: json.dumps({"a": secret}),
    "json, not ascii": lambda secret: json.dumps({"a": secret}, ensure_ascii=False),
    "json in json": lambda secret: twice(json.dumps({"a": secret})),
    "json in json in json": lambda secret: json.dumps({"a": twice(f"<{secret}>")}),
    "json in a query": lambda secret: quote(json.dumps({"a": secret}), safe=""),
    "hex": lambda secret: f"0x{secret.encode().hex()}.",
    "HEX": lambda secret: f"0x{secret.encode().hex().upper()}.",
}


@each_case("secret", SECRETS)
@each_case("encode", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_a_secret_is_found_however_it_is_written(secret: str, encode: Callable[[str], str]) -> None:
    redactor = Redactor()
    redactor.register(secret)
    text = encode(secret)
    masked = redactor.mask_registered(f"before {text} after")
    assert MASK in masked
    assert survivors(secret, masked) == []
    assert masked.startswith("before ")
    assert masked.endswith(" after")


@each_case("secret", SECRETS)
@each_case("before", ["", "a", "ab", "abc"])
@each_case("after", ["", "z", "zz"])
@each_case("encode", [base64.b64encode, base64.urlsafe_b64encode])
@each_case("padded", [True, False])
def test_base64_is_found_at_any_alignment_padded_or_not(
    secret: str, before: str, after: str, encode: Callable[[bytes], bytes], padded: bool
) -> None:
    redactor = Redactor()
    redactor.register(secret)
    encoded = encode((before + secret + after).encode()).decode()
    masked = redactor.mask_registered(f"x {encoded if padded else encoded.rstrip('=')} y")
    assert MASK in masked
    # What is left decodes to nothing of the secret: not even its first or last two characters.
    rest = masked.replace(MASK, "").removeprefix("x ").removesuffix(" y").rstrip("=")
    assert len(rest) <= (len(before) * 8 + 5) // 6 + (len(after) * 8 + 5) // 6
    assert masked.startswith("x ")
    assert masked.endswith(" y")


def test_hex_digits_are_found_in_either_case() -> None:
    redactor = Redactor()
    redactor.register("DeadBeef00112233-aabb")
    assert redactor.mask_registered("deadbeef00112233-aabb DEADBEEF00112233-AABB") == f"{MASK} {MASK}"


def test_only_the_escapes_of_the_secret_are_masked() -> None:
    redactor = Redactor()
    redactor.register("a/b c?")
    assert redactor.mask_registered("%41%2Fx a%2fb%20c%3F %zz 100% \\n") == f"%41%2Fx {MASK} %zz 100% \\n"


def test_bytes_that_are_no_text_do_not_move_the_mask() -> None:
    redactor = Redactor()
    redactor.register("s3cr3t/x")
    assert redactor.mask_registered("%ff%fes3cr3t%2Fx%ff|") == f"%ff%fe{MASK}%ff|"


def survivors(secret: str, text: str) -> list[str]:
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    looked_for = {secret, plain, quote(secret, safe=""), quote_plus(secret), secret.encode().hex()}
    return [form for form in looked_for if form in text]


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="[]"), min_size=8, max_size=20),
    st.lists(st.sampled_from(sorted(ENCODINGS)), min_size=1, max_size=3),
)
@example("%41%41%41%41", ["query"])
@example("\\\\\\\\aaaa", ["json in json"])
def test_any_secret_is_found_in_any_encoding(secret: str, chosen: list[str]) -> None:
    secret = secret.strip()
    if len(secret) < 8 or secret in MASK:
        return
    redactor = Redactor()
    redactor.register(secret)
    masked = redactor.mask_registered(" | ".join(ENCODINGS[name](secret) for name in chosen))
    assert survivors(secret, masked) == []


@each_case("hostile", ["%", "\\", "%41", "\\u0041", "\\\\", "\\ud83d", "%25", "QUJD"])
def test_hostile_text_costs_no_more_than_its_length(hostile: str) -> None:
    redactor = Redactor()
    for number in range(20):
        redactor.register(f"registered-secret-{number}")
    text = hostile * (200_000 // len(hostile))
    assert len(redactor.mask_registered(text)) == len(text)
