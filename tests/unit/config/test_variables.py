from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.config.models import ChildSpec, OAuthClient
from switchboard_mcp.config.variables import VariableUse, expand, secret_values, unsupported_references
from switchboard_mcp.errors import Failure
from tests.cases import each_case

ENVIRON = {"A": "one", "EMPTY": "", "HOME": "/home/u", "NESTED": "${A}"}


def child(**parts: object) -> ChildSpec:
    return ChildSpec(name="git", source="/w/.mcp.json", **parts)  # type: ignore[arg-type]


def filled(text: str) -> str:
    spec = expand(child(args=[text]), ENVIRON)
    assert isinstance(spec, ChildSpec)
    return spec.args[0]


@each_case(
    ("text", "result"),
    [
        ("${A}", "one"),
        ("x${A}y${A}", "xoneyone"),
        ("${EMPTY}", ""),
        ("${GONE:-two}", "two"),
        ("${GONE:-}", ""),
        ("${EMPTY:-two}", "two"),
        ("${A:-two}", "one"),
        ("${GONE:-a:b-c $x}", "a:b-c $x"),
        ("${NESTED}", "${A}"),
        ("$A", "$A"),
        ("$$", "$$"),
        ("$${A}", "$one"),
        ("${}", "${}"),
        ("${1A}", "${1A}"),
        ("${A", "${A"),
        ("${env:A}", "${env:A}"),
        ("${A%x}", "${A%x}"),
    ],
)
def test_only_the_braced_form_is_filled(text: str, result: str) -> None:
    assert filled(text) == result


def test_every_text_of_a_child_is_filled_and_names_are_not() -> None:
    spec = child(
        command="${A}",
        args=["${A}"],
        env={"${A}": "${A}"},
        url="u/${A}",
        headers={"H": "${A}"},
        cwd="/w/${A}",
    )
    assert expand(spec, ENVIRON) == child(
        command="one", args=["one"], env={"${A}": "one"}, url="u/one", headers={"H": "one"}, cwd="/w/one"
    )


def test_the_client_of_a_login_is_filled_and_its_secret_hidden() -> None:
    spec = child(oauth=OAuthClient(client_id="${A}", client_secret="${SECRET}", callback_port=1))
    environ = {**ENVIRON, "SECRET": "sesame-1234"}
    result = expand(spec, ENVIRON)
    assert isinstance(result, Failure)
    assert "oauth.clientSecret" in result.message
    assert expand(spec, environ) == child(
        oauth=OAuthClient(client_id="one", client_secret="sesame-1234", callback_port=1)
    )
    assert "sesame-1234" in secret_values(spec, environ)
    assert secret_values(child(oauth=OAuthClient(client_secret="plainly")), {}) == ["plainly"]


def test_a_folder_that_turns_out_absolute_is_not_put_under_the_workspace() -> None:
    spec = expand(child(cwd="/w/mcps/git/${HOME}/x"), ENVIRON)
    assert isinstance(spec, ChildSpec)
    assert spec.cwd == "/home/u/x"


def test_a_child_without_variables_is_handed_back_as_it_is() -> None:
    spec = child(command="x", args=["$HOME"])
    assert expand(spec, {}) is spec


def test_a_missing_variable_is_a_failure_that_names_variable_file_and_key() -> None:
    problem = expand(child(command="x", env={"T": "${GONE}"}), ENVIRON)
    assert isinstance(problem, Failure)
    assert (problem.code, problem.child) == ("variable_missing", "git")
    assert (
        problem.message == "Child 'git' cannot start: this variable is not set: GONE (/w/.mcp.json: env.T)."
    )


def test_all_missing_variables_are_named_at_once_by_their_place_in_the_file() -> None:
    problem = expand(
        child(key="mcpServers.git", nested=True, command="${B}", args=["", "${C}"], url="${D}"), ENVIRON
    )
    assert isinstance(problem, Failure)
    assert problem.message == (
        "Child 'git' cannot start: these variables are not set: B (/w/.mcp.json: mcpServers.git.command.cmd); "
        "C (/w/.mcp.json: mcpServers.git.command.args[1]); D (/w/.mcp.json: mcpServers.git.url)."
    )


def test_forms_of_other_hosts_are_recognised() -> None:
    spec = child(args=["${input:x}", "${A}"], env={"T": "${env:A}"})
    assert unsupported_references(spec) == [
        VariableUse("args[0]", "${input:x}"),
        VariableUse("env.T", "${env:A}"),
    ]


@given(st.text(), st.dictionaries(st.sampled_from(["A", "B"]), st.text()))
def test_any_text_is_filled_or_told_but_never_raises(text: str, environ: dict[str, str]) -> None:
    result = expand(child(args=[text]), environ)
    assert isinstance(result, Failure) or "${A}" not in text or "A" in environ


@each_case(
    ("name", "value"),
    [
        ("GITHUB_TOKEN", "ghp_x"),
        ("OPENAI_KEY", "abcde"),
        ("DB_PASSWORD", "12345678"),
        ("ANYTHING", "q8Zr-77xy"),
        ("ANYTHING", "alongpassphraseoflettersalone"),
        ("HOST_TOKEN", "us-east-1"),
        ("MODEL_KEY", "gpt-4.1-mini"),
        ("REGION", "AKIA1234567890ABCDEF"),
        ("ANYTHING", "hunter2-hunter2"),
        ("ANYTHING", "correct-horse-7-battery"),
    ],
)
def test_a_value_that_may_be_a_secret_is_registered(name: str, value: str) -> None:
    assert secret_values(child(env={name: value}), {}) == [value]


@each_case(
    ("name", "value"),
    [
        ("NODE_ENV", "production"),
        ("DEBUG", "true"),
        ("PORT", "12345678"),
        ("VERSION", "1.2.3.4.5"),
        ("DATA", "/var/lib/data1"),
        ("DATA", "./data/file-1"),
        ("DATA", "~/data-123"),
        ("DATA", "C:\\data-123"),
        ("KEY_FILE", "/etc/ssl/key1.pem"),
        ("TOKEN", "abc"),
        ("SHORT", "a1b2"),
        ("API", "https://api.example.com/v1"),
        ("EMPTY", ""),
        ("AWS_REGION", "us-east-1"),
        ("ANYTHING", "ap-southeast-2"),
        ("ANYTHING", "europe-west4-a"),
        ("ANYTHING", "en_US.UTF-8"),
        ("ANYTHING", "2025-01-31"),
        ("ANYTHING", "2025-01-31T12:00:00Z"),
        ("TZ", "Etc/GMT+12"),
        ("OPENAI_MODEL", "gpt-4.1-mini"),
        ("AWS_PROFILE", "team-7-dev"),
        ("REDIS_HOST", "redis-01.internal"),
        ("LOG_LEVEL", "debug,http=1"),
    ],
)
def test_a_value_that_is_plainly_none_is_not(name: str, value: str) -> None:
    assert secret_values(child(env={name: value}), {}) == []


def test_the_password_in_an_address_is_registered_alone() -> None:
    assert secret_values(child(env={"DB": "postgres://user:pa55word@host/db"}), {}) == ["pa55word"]


def test_a_header_is_registered_with_and_without_its_scheme() -> None:
    assert secret_values(child(headers={"Authorization": "Bearer abcdef12"}), {}) == [
        "Bearer abcdef12",
        "abcdef12",
    ]


def test_the_value_of_a_variable_is_registered_as_secret_wherever_it_is_used() -> None:
    spec = child(args=["--key=${API_TOKEN}"], env={"X": "${OTHER}"})
    assert secret_values(spec, {"API_TOKEN": "s3cr3t", "OTHER": "value-of-other-1"}) == [
        "value-of-other-1",
        "s3cr3t",
    ]


def test_a_value_of_many_lines_is_registered_line_by_line() -> None:
    key = "-----BEGIN X-----\nMIIEvQIBADANBgkq\nshort\n-----END X-----"
    assert secret_values(child(env={"K": key}), {}) == [key, "MIIEvQIBADANBgkq"]
