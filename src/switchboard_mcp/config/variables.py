"""Expands `${VAR}` and `${VAR:-default}`, and collects a child's secrets for redaction.

Values come from the environment, then from those that the workspace stores for the child (`secrets_file`). Those in
the system keyring are read when the child is expanded for the first time, which may wait for the user to unlock it.

Variables are expanded in command, args, env, url, headers, oauth and cwd. Only the `${…}` form counts, so a shell's
`$HOME` or `$$` is left alone. As in a shell, a default replaces a variable that is unset or empty. Expanded text is not
expanded again.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping

from msgspec import Struct, structs

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.files.secrets_file import is_keyring_reference
from switchboard_mcp.config.models import ChildSpec, OAuthClient
from switchboard_mcp.errors import Failure, failure, shell_word
from switchboard_mcp.redaction.redactor import is_secret_name

# The texts of `oauth` in which variables are expanded, with their fields.
OAUTH_STRINGS = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "clientMetadataUrl": "client_metadata_url",
    "privateKeyFile": "private_key_file",
    "issuer": "issuer",
}
_REFERENCE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}"
_FOREIGN = r"\$\{(?:env|input|file|command|config):[^}]*\}"
_PLAIN_VALUE = r"[+-]?[0-9.,_:]+|true|false|yes|no|on|off|null|none"
_PATH = r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]"
_SECRET_LENGTH = 8
# A value of only letters is a word such as `production`, unless it is longer than words are.
_WORD_LENGTH = 20
# Under a name such as TOKEN, shorter values count too; even shorter ones would mask half of every log line.
_NAMED_SECRET_LENGTH = 5
_LINE_LENGTH = 16
# Regions (us-east-1, europe-west4-a), locales (en_US.UTF-8), dates and times.
_ORDINARY_VALUE = (
    r"[a-z]{2,12}(?:-[a-z]{2,4})?-(?:north|south|east|west|central)(?:east|west|central)?-?[0-9]{1,2}(?:-?[a-f])?"
    r"|[a-z]{2}[-_][A-Z]{2}(?:\.[A-Za-z0-9-]{2,12})?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+(?:Z|[+-][0-9:]{4,6})?)?"
)
# Words in the names of variables whose values are settings.
_ORDINARY_NAMES = frozenset(
    "REGION ZONE TIMEZONE TZ LOCALE LANG LANGUAGE MODEL VERSION PROFILE HOST HOSTNAME ADDRESS DOMAIN ORIGIN "
    "LEVEL MODE FORMAT ENCODING ENVIRONMENT TRANSPORT".split()
)
_PEM = "-----BEGIN "
# A part of a URL counts as a key from this length on, with at least this many digits.
_KEY_LENGTH, _KEY_DIGITS = 16, 4


class VariableUse(Struct, frozen=True):
    """A variable and the key path that references it."""

    key: str
    variable: str


def expand(spec: ChildSpec, environ: Mapping[str, str]) -> ChildSpec | Failure:
    """Return the child with all variables expanded, or a failure that names what is missing."""
    if spec.incomplete:
        return failure(
            "child_incomplete", f"Child '{spec.name}' cannot start: {spec.incomplete}", child=spec.name
        )
    if "${" not in joined_strings(spec):
        return spec
    if names := keyring_variables(spec, environ):
        from switchboard_mcp.config.keyring_store import load_all  # Loaded only if used.

        loaded = load_all({name: spec.stored[name] for name in names})
        if isinstance(loaded, Failure):
            message = f"Child '{spec.name}' cannot start: {loaded.message}"
            return structs.replace(loaded, message=message, child=spec.name)
        spec.stored.loaded.update(loaded)
    environ = _values(spec, environ)
    if gaps := missing_variables(spec, environ):
        listed = "; ".join(f"{gap.variable} ({spec.source}: {gap.key})" for gap in gaps)
        what = "this variable is" if len(gaps) == 1 else "these variables are"
        return failure(
            "variable_missing",
            f"Child '{spec.name}' cannot start: {what} not set: {listed}.",
            child=spec.name,
        )
    return structs.replace(
        spec,
        command=_fill(spec.command, environ),
        args=[_fill(text, environ) for text in spec.args],
        env={name: _fill(text, environ) for name, text in spec.env.items()},
        url=_fill(spec.url, environ),
        headers={name: _fill(text, environ) for name, text in spec.headers.items()},
        oauth=_fill_client(spec.oauth, environ),
        cwd=_fill_path(spec.cwd, environ),
    )


def keyring_variables(spec: ChildSpec, environ: Mapping[str, str]) -> list[str]:
    """Return the variables whose values must still be read from the system keyring."""
    if not spec.stored:
        return []
    return sorted(
        name
        for name, value in spec.stored.items()
        if name not in environ and name not in spec.stored.loaded and is_keyring_reference(value)
    )


def fill(text: str, environ: Mapping[str, str]) -> str | list[str]:
    """Return the text with all variables expanded, or the names of those that are not set."""
    if "${" not in text:
        return text
    references = re.finditer(_REFERENCE, text)
    gaps = [match[1] for match in references if match[2] is None and match[1] not in environ]
    return gaps or _fill(text, environ)


def missing_variables(spec: ChildSpec, environ: Mapping[str, str]) -> list[VariableUse]:
    """Return the variables that are referenced without a default and not set."""
    return [
        VariableUse(key, reference[1])
        for key, reference in _references(spec)
        if reference[2] is None and reference[1] not in environ and reference[1] not in spec.stored
    ]


def used_variables(spec: ChildSpec) -> list[VariableUse]:
    """Return every variable that the child references, set or not."""
    return [VariableUse(key, reference[1]) for key, reference in _references(spec)]


def _references(spec: ChildSpec) -> Iterator[tuple[str, re.Match[str]]]:
    if "${" not in joined_strings(spec):
        return
    for key, text in expandable_strings(spec):
        if "${" in text:
            for reference in re.finditer(_REFERENCE, text):
                yield key, reference


def unsupported_references(spec: ChildSpec) -> list[VariableUse]:
    """Return references in a form that only some hosts support, such as `${input:token}`. They are not expanded."""
    if "${" not in joined_strings(spec):
        return []
    return [
        VariableUse(key, reference[0])
        for key, text in expandable_strings(spec)
        if "${" in text
        for reference in re.finditer(_FOREIGN, text)
    ]


def expandable_strings(spec: ChildSpec) -> Iterator[tuple[str, str]]:
    """Yield every string of a child in which variables are expanded, with its key path in the file."""
    inner = join_key(spec.key, "command") if spec.nested else spec.key
    yield join_key(inner, "cmd") if spec.nested else join_key(spec.key, "command"), spec.command
    if spec.args:
        key = join_key(inner, "args")
        for index, text in enumerate(spec.args):
            yield f"{key}[{index}]", text
    if spec.env:
        key = join_key(inner, "env")
        for name, text in spec.env.items():
            yield join_key(key, name), text
    yield join_key(spec.key, "url"), spec.url
    if spec.headers:
        key = join_key(spec.key, "headers")
        for name, text in spec.headers.items():
            yield join_key(key, name), text
    if isinstance(spec.oauth, OAuthClient):
        key = join_key(spec.key, "oauth")
        for name, field in OAUTH_STRINGS.items():
            yield join_key(key, name), getattr(spec.oauth, field)
    yield join_key(spec.key, "cwd"), spec.cwd


def referenced_variables(spec: ChildSpec) -> set[str]:
    """Return the names of the variables that a child's entry refers to."""
    return {
        reference[1]
        for _, text in expandable_strings(spec)
        if "${" in text
        for reference in re.finditer(_REFERENCE, text)
    }


def joined_strings(spec: ChildSpec) -> str:
    """Return the same strings joined, to test quickly whether any of them contains something."""
    return "\n".join(
        (
            *(spec.command, *spec.args, *spec.env.values(), spec.url, *spec.headers.values(), spec.cwd),
            *(
                (getattr(spec.oauth, field) for field in OAUTH_STRINGS.values())
                if isinstance(spec.oauth, OAuthClient)
                else ()
            ),
        )
    )


def shown_environment(spec: ChildSpec) -> dict[str, str]:
    """Return the variables of a child's entry as a shell may set them. Values that may be secrets are left out."""
    shown = {}
    for name, text in spec.env.items():
        if re.search(_REFERENCE, text):
            shown[name] = "…" if not re.fullmatch(_REFERENCE, text) else f'"{text}"'
        else:
            shown[name] = "…" if any(_secrets_in(name, text, spec.cwd)) else shell_word(text)
    return shown


def secret_values(spec: ChildSpec, environ: Mapping[str, str]) -> list[str]:
    """Return the values of a child to register with the redactor, longest first, without duplicates."""
    environ = _values(spec, environ)
    if unknown := {use.variable for use in used_variables(spec)} - environ.keys():
        # A reference that is not filled is not a secret.
        environ = {**environ, **dict.fromkeys(unknown, "")}
    values: set[str] = set()
    for name, text in (*spec.env.items(), *spec.headers.items()):
        value = _fill(text, environ)
        values.update(_secrets_in(name, value, spec.cwd))
        if name in spec.headers:
            # `Bearer abc`: the scheme is not secret, and the token may appear without it.
            values.update(_secrets_in(name, value.rpartition(" ")[2], spec.cwd))
            values.update(_secrets_in(name, value.partition(" ")[2], spec.cwd))
    if isinstance(spec.oauth, OAuthClient):
        values.update(_secrets_in("client_secret", _fill(spec.oauth.client_secret, environ), spec.cwd))
    values.update(_secrets_in_args([_fill(text, environ) for text in spec.args], spec.cwd))
    values.update(_secrets_in_url(_fill(spec.url, environ)))
    for _, text in expandable_strings(spec):
        if "${" in text:
            for reference in re.finditer(_REFERENCE, text):
                values.update(_secrets_in(reference[1], environ.get(reference[1], ""), spec.cwd))
    return sorted(values, key=lambda value: (-len(value), value))


def _values(spec: ChildSpec, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values that are known by now: those in the system keyring only after they were read."""
    if not spec.stored:
        return environ
    stored = {name: value for name, value in spec.stored.items() if not is_keyring_reference(value)}
    return ChainMap(environ, spec.stored.loaded, stored)  # type: ignore[arg-type]  # only read


def _fill(text: str, environ: Mapping[str, str]) -> str:
    if "${" not in text:
        return text

    def expand_one(reference: re.Match[str]) -> str:
        value = environ.get(reference[1])
        default = reference[2]
        if default is None:
            return reference[0] if value is None else value
        return value or str(default)

    return re.sub(_REFERENCE, expand_one, text)


def _fill_client(client: OAuthClient | bool | None, environ: Mapping[str, str]) -> OAuthClient | bool | None:
    if not isinstance(client, OAuthClient):
        return client
    return structs.replace(
        client, **{field: _fill(getattr(client, field), environ) for field in OAUTH_STRINGS.values()}
    )


def _fill_path(text: str, environ: Mapping[str, str]) -> str:
    """Expand a path that was joined to its base before `${HOME}` was known to be absolute, and join it again."""
    base, slash, rest = text.partition(os.sep + "${")
    if not slash:
        return _fill(text, environ)
    return os.path.normpath(os.path.join(_fill(base, environ) or os.sep, _fill("${" + rest, environ)))


def _secrets_in_args(args: list[str], cwd: str) -> Iterator[str]:
    """Yield the values of options with a secret name, in the same argument or in the next."""
    for text, following in zip(args, (*args[1:], ""), strict=False):
        name, equals, value = text.partition("=")
        if is_secret_name(name):
            if equals:
                yield from _secrets_in(name, value, cwd)
            elif name.startswith("-") and (not following.startswith("-") or following.startswith(_PEM)):
                yield from _secrets_in(name, following, cwd)


def _secrets_in_url(url: str) -> Iterator[str]:
    """Yield the password and the query values of a URL, and every part that looks like a key."""
    if "://" not in url:
        return
    from urllib.parse import parse_qsl, unquote, urlsplit  # Only needed for URLs that may contain one.

    try:
        parts = urlsplit(url)
        passwords = (parts.password or "", unquote(parts.password or ""))
    except ValueError:
        return
    yield from (password for password in passwords if len(password) >= _NAMED_SECRET_LENGTH)
    for part in (parts.username or "", parts.fragment, *parts.path.split("/")):
        yield from (text for text in {part, unquote(part)} if _looks_random(text))
    for name, value in parse_qsl(parts.query):
        if len(value) >= (_NAMED_SECRET_LENGTH if is_secret_name(name) else _SECRET_LENGTH):
            yield value


def _looks_random(text: str) -> bool:
    """Return True for a part of a URL that is more likely a key than a name: long, of letters and many digits."""
    if len(text) < _KEY_LENGTH or not re.fullmatch(r"[A-Za-z0-9._~=+-]+", text):
        return False
    digits = sum(character.isdigit() for character in text)
    mixed = any(map(str.islower, text)) and any(map(str.isupper, text))
    return digits >= _KEY_DIGITS or (digits > 0 and mixed and "-" not in text)


def _is_ordinary(name: str, value: str) -> bool:
    """Return True for a value that logs need to be readable: a region, a locale, a date, or what the name says."""
    if re.fullmatch(_ORDINARY_VALUE, value):
        return True
    words = re.split(r"[^A-Z]+", name.upper())
    return "://" not in value and not _looks_random(value) and not _ORDINARY_NAMES.isdisjoint(words)


def _is_file(value: str, cwd: str) -> bool:
    """Return True for the path of an existing file: its content is secret, and its name is needed in logs."""
    return bool(re.match(_PATH, value)) and os.path.exists(os.path.join(cwd, os.path.expanduser(value)))


def _secrets_in(name: str, value: str, cwd: str = "") -> Iterator[str]:
    value = value.strip()
    if "\n" in value:
        # Logs are redacted line by line, so a multi-line key must be registered line by line.
        yield value
        lines = (line.strip() for line in value.splitlines())
        yield from (line for line in lines if len(line) >= _LINE_LENGTH and not line.startswith("-----"))
        return
    if re.fullmatch(_PLAIN_VALUE, value, re.IGNORECASE) and not is_secret_name(name):
        return
    if is_secret_name(name) or name.upper().endswith(("KEY", "AUTH")):
        if len(value) >= _NAMED_SECRET_LENGTH and value.lower() != "false" and not _is_file(value, cwd):
            yield value
            yield from _secrets_in_url(value)
        return
    if len(value) < _SECRET_LENGTH or re.match(_PATH, value):
        return
    if _is_ordinary(name, value):
        return
    if "://" in value:
        # A URL is not secret, but the password in it is.
        password = value.partition("://")[2].rpartition("@")[0].partition(":")[2]
        if len(password) >= _NAMED_SECRET_LENGTH:
            yield password
        yield from _secrets_in_url(value)
        return
    if len(value) >= _WORD_LENGTH or any(
        not (character.isalpha() or character in "-_ ,") for character in value
    ):
        yield value
