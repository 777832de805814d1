from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from switchboard_mcp.errors import failure
from switchboard_mcp.redaction.redactor import MASK, MAX_DEPTH, MAX_RECENT, Redactor, is_secret_name
from tests.cases import each_case

# Built in pieces, so that no scanner takes this file for a leak.
CREDENTIALS = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + "a1B2" * 9,
    "github fine-grained": "github_pat_" + "11ABCDEFG0" + "x" * 40,
    "gitlab": "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
    "slack": "xoxb-" + "123456789012-abcdefghij",
    "openai": "sk-" + "proj-a1B2c3D4e5F6g7H8",
    "anthropic": "sk-" + "ant-api03-a1B2c3D4e5F6",
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "google oauth": "ya29." + "a0AfH6SMBx1234567890abc",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0.dozjgNryP4J3",
    "stripe": "sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc",
    "stripe hook": "whsec_" + "a1B2c3D4e5F6g7H8i9J0",
    "npm": "npm_" + "a1B2c3" * 6,
    "pypi": "pypi-" + "AgEIcHlwaS5vcmcCJDAwMDAw",
    "hugging face": "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwX",
    "sendgrid": "SG." + "a1B2c3D4e5F6g7H8i9J0aa." + "a1B2c3D4e5F6g7H8i9J0bb",
    "pem": "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
}


@each_case("credential", CREDENTIALS.values(), ids=CREDENTIALS.keys())
@each_case("around", ["{}", "got {} from it", '"{}",', "x={};", "({})", "https://h/?q={}&r=1"])
def test_a_credential_of_known_shape_is_masked_and_the_rest_kept(credential: str, around: str) -> None:
    assert Redactor().redact_text(around.format(credential)) == around.format(MASK)


@each_case(
    ("text", "masked"),
    [
        ("Bearer abcDEF12.3", "Bearer [redacted]"),
        ("authorization: Bearer abcdefgh", "authorization: [redacted]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: [redacted]"),
        ("Basic dXNlcjpwYXNzd29yZA==", "Basic [redacted]"),
        ("postgres://user:pass@host/db", "postgres://user:[redacted]@host/db"),
        ("redis://:pa@ss@host", "redis://:[redacted]@host"),
        (
            "https://hooks.slack.com/services/T000/B000/abcdefgh",
            "https://hooks.slack.com/services/[redacted]",
        ),
        ("Cookie: a=b; c=d\nHost: h", "Cookie: [redacted]\nHost: h"),
        ("set-cookie: sid=abc; Path=/", "set-cookie: [redacted]"),
        ("token=abc123", "token=[redacted]"),
        ("error: token=abc123, retry", "error: token=[redacted], retry"),
        ("the token: abc123 is old", "the token: [redacted] is old"),
        ("?access_token=abc&x=1", "?access_token=[redacted]&x=1"),
        ("GITHUB_TOKEN=abc ./run", "GITHUB_TOKEN=[redacted] ./run"),
        ("password: hunter", "password: [redacted]"),
        ("password=12345678", "password=[redacted]"),
        ("DB_PASSWD='a b'", "DB_PASSWD='[redacted]'"),
        ("api key: abc1", "api key: [redacted]"),
        ("X-Api-Key: abc1", "X-Api-Key: [redacted]"),
        ("privateKey => abc1", "privateKey => [redacted]"),
        ("--api-key abc --verbose", "--api-key [redacted] --verbose"),
        ("--client-secret=abc -v", "--client-secret=[redacted] -v"),
        ('{"api_key": "a \\" b", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        ("{'secret': 'abc'}", "{'secret': '[redacted]'}"),
        (r"{\"token\": \"abc\", \"x\": \"y\"}", r"{\"token\": \"[redacted]\", \"x\": \"y\"}"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "[redacted]"),
    ],
)
def test_a_secret_in_a_text_is_masked_and_what_is_around_it_kept(text: str, masked: str) -> None:
    assert Redactor().redact_text(text) == masked


@each_case(
    "text",
    [
        "",
        "plain words, 12 of them",
        "token_count=12",
        "budgetTokens: 1200",
        '"tokens": 5, "maxTokens": null',
        "--max-tokens 500",
        "token=true",
        "tokenizer=cl100k_base",
        "Unexpected token: expected a string",
        "Unexpected token } in JSON",
        "the secret of success",
        "Basic understanding of things",
        "Bearer certificates are accepted",
        "sk-learn-is-a-very-long-name",
        "task-1234567890123456789",
        "https://example.com:8080/a@b",
        "ssh://git@github.com/a/b",
        "mailto:someone@example.com",
        "monkey=banana keyboard: qwerty",
        "ghp_short",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor().redact_text(text) == text


@each_case(
    "name",
    ["token", "ACCESS_TOKEN", "clientSecret", "Pass-Word", "passwd", "Authorization", "set-cookie", "api key",
     "API_KEY", "x-apikey", "private.key", "awsCredentials", "passphrase"],
)  # fmt: skip
def test_a_name_says_secret_whatever_its_case_and_separators(name: str) -> None:
    assert is_secret_name(name)


@each_case("name", ["name", "key", "author", "tokenizer", "pass", "cook", "path", "monkey"])
def test_an_ordinary_name_does_not(name: str) -> None:
    assert not is_secret_name(name)


def test_nested_values_are_masked_by_name_and_by_shape() -> None:
    value = {
        "child": "git",
        "env": {"GITHUB_TOKEN": "x", "LEVEL": "info"},
        "args": ["--token", "ok", f"see {CREDENTIALS['github']}"],
        "credentials": {"user": "u", "pins": [1, "two"], "none": None},
        "tokens": 5,
        "budgetTokens": 1200,
        "token": True,
        "secret": "",
        "ratio": 0.5,
        "pair": ("a", "password=b"),
        "raw": b"password=\xff1",
        7: "seven",
    }
    assert Redactor().redact_value(value) == {
        "child": "git",
        "env": {"GITHUB_TOKEN": MASK, "LEVEL": "info"},
        "args": ["--token", "ok", f"see {MASK}"],
        "credentials": {"user": MASK, "pins": [1, MASK], "none": None},
        "tokens": 5,
        "budgetTokens": 1200,
        "token": True,
        "secret": "",
        "ratio": 0.5,
        "pair": ["a", f"password={MASK}"],
        "raw": b"password=[redacted]",
        7: "seven",
    }


def test_names_given_by_the_caller_are_masked_whatever_they_hold() -> None:
    masked = Redactor().redact_value({"pin": 1234, "deep": {"pin": {"a": 1}}, "x": 1}, also=["pin"])
    assert masked == {"pin": MASK, "deep": {"pin": MASK}, "x": 1}


def test_the_value_that_was_given_is_not_changed() -> None:
    value = {"a": {"token": "x"}}
    Redactor().redact_value(value)
    assert value == {"a": {"token": "x"}}


def test_a_value_nested_too_deeply_is_masked_whole() -> None:
    deep: Any = "plain"
    for _ in range(5000):
        deep = [deep]
    masked: Any = Redactor().redact_value(deep)
    for _ in range(MAX_DEPTH):
        masked = masked[0]
    assert masked == MASK


def test_a_registered_value_is_masked_inside_longer_text_and_in_names() -> None:
    redactor = Redactor()
    redactor.register(" s3same ")
    assert redactor.redact_text("as3sameb s3same") == "a[redacted]b [redacted]"
    assert redactor.redact_value({"s3same": ["s3same!"]}) == {MASK: [f"{MASK}!"]}


def test_the_longest_registered_value_wins_and_overlaps_leave_no_rest() -> None:
    redactor = Redactor()
    for value in ("abcd", "abcdefgh", "ghijkl"):
        redactor.register(value)
    assert redactor.redact_text("abcdefghijkl abcd") == f"{MASK} {MASK}"


def test_a_registered_value_is_masked_as_json_writes_it() -> None:
    redactor = Redactor()
    redactor.register('a"b\\c\nd')
    assert redactor.redact_text(json.dumps({"x": 'a"b\\c\nd'})) == f'{{"x": "{MASK}"}}'


def test_a_remembered_secret_is_hidden_until_enough_others_have_come() -> None:
    redactor = Redactor()
    redactor.register_recent(["hidden-one", "abc"])
    version = redactor.version
    redactor.register_recent(["hidden-one"])
    assert redactor.version == version
    assert redactor.redact_text("hidden-one abc") == f"{MASK} abc"
    redactor.register_recent(f"other-{number}" for number in range(MAX_RECENT - 1))
    assert redactor.redact_text("hidden-one other-0") == f"{MASK} {MASK}"
    redactor.register_recent(["one-more"])
    assert redactor.redact_text("hidden-one other-0") == f"hidden-one {MASK}"


def test_a_failure_is_masked_in_message_stderr_and_data() -> None:
    redactor = Redactor()
    redactor.register("correct-horse")
    data = Raw(b'{"seen":["correct-horse",1.50]}')
    problem = failure("child_error", "it said correct-horse", stderr=["E correct-horse"], data=data)
    shown = redactor.redact_failure(problem)
    assert "correct-horse" not in str(shown)
    assert shown.stderr == [f"E {MASK}"]
    harmless = failure("child_error", "it said nothing", data=Raw(b'{"n":1.50}'))
    assert redactor.redact_failure(harmless) is harmless
    assert redactor.redact_failure(failure("child_error", "x", data=Raw(b"{broken"))).data == Raw(
        b'"[redacted]"'
    )


def test_a_text_is_masked_before_it_is_cut() -> None:
    redactor = Redactor()
    redactor.register("correct-horse-battery")
    assert redactor.redact_and_clip("x" * 10 + "correct-horse-battery", 20) == "x" * 10 + MASK


@each_case("value", ["", "  ", "abc", "redacted"])
def test_values_too_short_or_part_of_the_mask_are_not_registered(value: str) -> None:
    redactor = Redactor()
    redactor.register(value)
    assert redactor.redact_text(f"x{value}x") == f"x{value}x"


def is_part_of_mask(value: str) -> bool:
    return value.strip() in MASK


def flat(value: Any) -> list[str]:
    return [*value["a"], *value]


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_characters="[]"), min_size=6, max_size=12),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(0, 3) | st.text(max_size=6), max_size=8),
)
@example(["aaaaaa", "aaaaaaa"], [0, "a", 1])
@example(["://a:b@c"], [0])
def test_a_registered_value_never_survives(values: list[str], parts: list[int | str]) -> None:
    values = [value.strip() for value in values if len(value.strip()) >= 4 and not is_part_of_mask(value)]
    redactor = Redactor()
    for value in values:
        redactor.register(value)
    text = "".join(
        part if isinstance(part, str) else values[part % len(values)] if values else "" for part in parts
    )
    for masked in (redactor.redact_text(text), *flat(redactor.redact_value({"a": [text], f"{text}…": 1}))):
        assert [value for value in values if value in masked] == []


@given(st.text())
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = Redactor().redact_text(text)
    assert Redactor().redact_text(once) == once


@each_case(
    "hostile",
    [
        "a", "eyJ", "eyJ.", "sk-", "://", "://:", "://a:b", "token", "token ", "token=", 'token="', "token=\\",
        "api key ", "--token ", "bearer ", "basic a", "cookie:", "ghp_", "SG.a.", "-", "-----BEGIN PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_hostile_text_costs_no_more_than_its_length(hostile: str) -> None:
    # A pattern that reads the rest again from every place would take hours here, and run into the time limit.
    text = hostile * (400_000 // len(hostile))
    assert len(Redactor().redact_text(text)) <= len(text) * 10
