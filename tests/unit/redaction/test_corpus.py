"""The corpus of secrets: every name, value, encoding and place in combination, and not one of them gets through."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.variables import secret_values
from switchboard_mcp.errors import failure
from switchboard_mcp.redaction.redactor import Redactor, is_secret_name
from tests.cases import each_case

NAMES = (
    *("API_KEY", "GITHUB_TOKEN", "clientSecret", "X-Api-Key", "sessionid", "PASSPHRASE", "Authorization"),
    *(
        "DB_PASS",
        "smtpPass",
        "SMTP_PWD",
        "MYSQL_PWD",
        "db.pw",
        "USER_PIN",
        "pin",
        "card-pin",
        "OTP",
        "PASSCODE",
    ),
    *("SENTRY_DSN", "DATABASE_DSN", "dsn", "SLACK_WEBHOOK_URL", "discord_webhook", "GH_PAT", "AWS_CREDS"),
    *("PGPASS", "ACCESS_CODE", "MNEMONIC", "PASSWORT"),
)
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(f"{n:02d}Abc/def+Ghi{n * 7919:040d}" for n in range(30))
VALUES = (
    *(
        "hunter2",
        "12345",
        "4711-x",
        "p@ss:w/rd#1",
        'with"quote\\slash',
        "ümläut-geheim",
        "correct horse battery",
    ),
    # They look like paths, and are none.
    *("/aB3/xY9+zz==", "~/k3yInHome77", "./k3y/abc12", "../k3y/abc12", "C:\\k3y\\abc", "\\\\k3y\\abc12"),
    *("postgres://user:pw1234@db/prod", "https://hooks.example.com/services/T01/B02/abcdef123456"),
    *("x" + "Ab3/" * 1_500, PEM),
)
ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda value: quote(value, safe=""),
    "form": quote_plus,
    "percent twice": lambda value: quote(quote(value, safe=""), safe=""),
    "json": lambda value: json.dumps(value, ensure_ascii=False),
    "ascii json": json.dumps,
    "json in json": lambda value: json.dumps(json.dumps({"a": value})),
    "unicode escapes": lambda value: "".join(f"\\u{ord(one):04x}" for one in value),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 after one": lambda value: base64.b64encode(b":" + value.encode()).decode(),
    "base64 after two": lambda value: base64.b64encode(b"u:" + value.encode() + b"!").decode(),
    "url-safe base64": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
}
# A number beside one of these is kept in a text; in the config of a child it is registered.
COUNTABLE = ("GITHUB_TOKEN", "sessionid", "Authorization", "SLACK_WEBHOOK_URL", "discord_webhook")
# Base64 of fewer characters is too short to be told from an ordinary word.
SHORTEST_IN_BASE64 = 8


def specs(name: str, value: str) -> Iterator[tuple[ChildSpec, dict[str, str]]]:
    """Every place of an entry where a value can stand under a name."""
    variable = "".join(one if one.isalnum() else "_" for one in name)

    def spec(**members: object) -> ChildSpec:
        return ChildSpec(name="c", kind="stdio", command="c", source="", **members)  # type: ignore[arg-type]

    yield spec(env={name: value}), {}
    yield spec(headers={name: value}), {}
    yield spec(headers={name: f"Bearer {value}"}), {}
    yield spec(args=[f"--{name}={value}"]), {}
    yield spec(args=[f"--{name}", value]), {}
    yield spec(env={"HARMLESS": f"${{{variable}}}"}), {variable: value}
    yield spec(args=[f"a/${{{variable}}}/b"]), {variable: value}


def outputs(redactor: Redactor, text: str) -> Iterator[str]:
    """Everything that a text may be turned into on its way out."""
    yield redactor.redact_text(text)
    yield redactor.redact_text(f"{'before ' * 50}{text}{' after' * 50}")
    for size in (10, 40, 200):
        yield redactor.redact_and_clip(text, size)
        yield redactor.redact_and_clip(f"error: {text}", size)
    yield str(redactor.redact_value({"a": [text, {"b": (text, 1)}], text: 1}))
    problem = failure("internal", text, stderr=[text, f"x {text}"])
    shown = redactor.redact_failure(problem)
    yield shown.message + "".join(shown.stderr or ())
    yield redactor.mask_registered_json(json.dumps({"a": text}).encode()).decode()


def leaks(output: str, text: str, value: str) -> bool:
    """Whether a text, or a telling part of the value itself, is still there."""
    pieces = (
        {value[at : at + 12] for at in range(0, max(1, len(value) - 11), 4)} if len(value) > 30 else set()
    )
    return text in output or value in output or any(piece in output for piece in pieces)


@each_case("name", NAMES)
def test_a_name_of_the_corpus_says_secret(name: str) -> None:
    assert is_secret_name(name)


def registered(spec: ChildSpec, environ: dict[str, str]) -> Redactor:
    redactor = Redactor()
    for secret in secret_values(spec, environ):
        redactor.register(secret)
    return redactor


@each_case("value", VALUES, ids=range(len(VALUES)))
def test_a_registered_value_leaves_in_no_encoding_and_through_no_output(value: str) -> None:
    redactor = registered(*next(specs("DB_PASS", value)))
    for encoding, encode in ENCODINGS.items():
        if len(value) < SHORTEST_IN_BASE64 and "base64" in encoding:
            continue
        text = encode(value).strip('"')
        for output in outputs(redactor, text):
            assert not leaks(output, text, value), (encoding, output[:300])


@each_case("name", NAMES)
def test_a_value_under_any_name_is_registered_wherever_it_stands(name: str) -> None:
    for value in VALUES:
        for spec, environ in specs(name, value):
            output = registered(spec, environ).redact_text(f"it was {value} there")
            assert not leaks(output, value, value), (spec, output[:300])


FORMS = (
    "{name}={value}",
    '{name}: "{value}"',
    '{{"{name}": "{value}"}}',
    "--{name} {value}",
    "{name}='{value}'",
)


@each_case("name", NAMES)
def test_a_value_that_nobody_registered_is_masked_beside_its_name(name: str) -> None:
    checked = 0
    for value in VALUES:
        # Others would have to be quoted or end there.
        if any(one in value for one in " \n\"'\\,;&<>()[]{}") or len(value) > 1_000:
            continue
        assert value not in str(Redactor().redact_value({"x": {name: value}}))
        for form in FORMS:
            is_bare = not ('"' in form or "'" in form)
            if value.isdigit() and name in COUNTABLE and is_bare:
                continue  # a count, as in `max_token=12345`
            assert value not in Redactor().redact_text(form.format(name=name, value=value)), form
            checked += 1
    assert checked >= 40


def test_a_file_that_exists_is_no_secret_and_one_that_does_not_is(tmp_path: Path) -> None:
    there = tmp_path / "key.pem"
    there.write_text("x")
    entry = ChildSpec(name="c", kind="stdio", command="c", source="", cwd=str(tmp_path), env={})
    from msgspec.structs import replace

    for value, expected in ((str(there), False), ("./key.pem", False), (str(tmp_path / "gone"), True)):
        found = secret_values(replace(entry, env={"TLS_PRIVATE_KEY": value}), {})
        assert (value in found) is expected


@each_case(
    "name",
    [
        "PWD",
        "OLDPWD",
        "compass",
        "bypass",
        "passed",
        "passthrough",
        "pinned",
        "opinion",
        "spin",
        "pingMs",
        "mapping",
        "tokenizer",
        "keyboard",
        "dsname",
        "pattern",
        "path",
        "compatible",
        "typing",
        "PIN_COUNT",
        "pass_count",
    ],
)
def test_an_ordinary_name_says_nothing(name: str) -> None:
    assert not is_secret_name(name)


@each_case("value", ["true", "false", "none", "off", "null", "False"])
def test_a_switch_under_a_secret_name_is_not_registered(value: str) -> None:
    spec = ChildSpec(name="c", kind="stdio", command="c", source="", env={"USE_TOKEN": value})
    assert secret_values(spec, {}) == []


WEBHOOKS = (
    "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "https://discord.com/api/webhooks/123456789012345678/AbCdEf-ghIJKLmnop_qrstuvwxyz0123456789",
    "https://discordapp.com/api/webhooks/123456789012345678/AbCdEf-ghIJKLmnop_qrstuvwxyz0123456789",
    "https://acme.webhook.office.com/webhookb2/11111111-2222@3333/IncomingWebhook/abcdef0123456789/4444",
    "https://outlook.office.com/webhook/11111111-2222@3333/IncomingWebhook/abcdef0123456789/4444",
    "https://api.telegram.org/bot123456:AbCdEfGhIjKlMnOpQrStUvWxYz012345678/sendMessage",
    "https://hooks.zapier.com/hooks/catch/123456/abcdef/",
    "https://chat.googleapis.com/v1/spaces/AAAA/messages?key=AIzaSyA&token=abcdefgh",
)


@each_case("url", WEBHOOKS)
def test_the_path_of_a_webhook_is_masked_in_any_text(url: str) -> None:
    output = Redactor().redact_text(f"POST {url} failed")
    secret = url.rstrip("/").split("/")[-1] if "telegram" not in url else "AbCdEfGhIjKlMnOp"
    assert secret.split("=")[-1] not in output
    assert output.startswith("POST https://")
    assert output.endswith(" failed")


@each_case(
    "url",
    [
        "https://mcp.example.com/{key}/mcp",
        "https://mcp.example.com/s/{key}",
        "https://mcp.example.com/v1/{key}/sse?x=1",
        "https://{key}@mcp.example.com/mcp",
        "https://mcp.example.com/mcp#{key}",
    ],
)
@each_case(
    "key",
    [
        "a1b2c3d4e5f6a7b8",
        "AbCdEfGh12345678IjKl",
        "sk_9f8e7d6c5b4a39281706",
        "6f1c2d3e-4b5a-6978-8897-a6b5c4d3e2f1",
    ],
)
def test_a_key_in_the_url_of_a_child_is_registered(url: str, key: str) -> None:
    spec = ChildSpec(name="c", kind="http", url=url.format(key=key), source="")
    assert any(key in secret for secret in secret_values(spec, {}))


@each_case(
    "url",
    [
        "https://api.githubcopilot.com/mcp/",
        "https://mcp.example.com/v1/organizations/my-organization-name/mcp",
        "https://mcp.context7.com/mcp",
        "https://example.com/internationalization/settings",
    ],
)
def test_an_ordinary_path_of_a_url_is_not(url: str) -> None:
    assert secret_values(ChildSpec(name="c", kind="http", url=url, source=""), {}) == []
