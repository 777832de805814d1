"""Hiding secrets in whatever is about to leave: log fields, stderr tails, error texts.

Three nets, widest first: values registered as secret, credentials known by their shape, and values that stand
under a name that says secret. Numbers, booleans and nothing stay as they are, since `budgetTokens: 1200` is
no secret. Cost is linear in the text: every pattern starts at the edge of a run and never gives back what it
took. Owns what counts as a secret; does not know where the text goes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw

from switchboard_mcp.errors import Failure
from switchboard_mcp.redaction.encodings import EncodedForm, encoded_forms, unescape_layers

MASK = "[redacted]"
# Shorter values would mask parts of ordinary words in every line.
MIN_REGISTERED = 4
# Arguments that must not be shown are hidden until so many others have come: longer than a call is spoken of.
MAX_RECENT = 64
# Deeper than any honest message, and far from Python's own limit.
MAX_DEPTH = 64

# What stands under a name with one of these in it is never logged. Compared without separators and case.
NEVER_LOG = (
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "cookie",
    "apikey",
    "privatekey",
    "accesskey",
    "accountkey",
    "signingkey",
    "encryptionkey",
    "credential",
    "connectionstring",
    "sessionid",
    "bearer",
    "jwt",
)
# Under these names even a bare number or word in a text is taken for the secret itself.
_STRICT_TERMS = ("secret", "passw", "passphrase", "apikey", "privatekey", "accesskey", "accountkey")

# The start of a run: what follows is not the middle of a longer word.
_EDGE = r"(?<![A-Za-z0-9_-])"
_SHAPES = (
    # Kept: the scheme, the user, the header's name. Masked: what follows.
    r"(?P<url>://[^\s/?#@:\"'<>]{0,256}+:)[^\s/?#\"'<>]{1,256}@",
    _EDGE + r"(?P<scheme>(?i:bearer|basic)[ \t]{1,8})(?=[A-Za-z._~+/-]{0,256}[0-9=])[A-Za-z0-9._~+/=-]{8,}+",
    _EDGE + r"(?P<cookie>(?i:set-cookie|cookie):[ \t]{0,8})[^\r\n\"']++",
    # Masked whole.
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,50}-----|\Z)",
    _EDGE + r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])",
    _EDGE + r"(?:gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_[A-Za-z0-9_]{20,}+|glpat-[A-Za-z0-9_-]{16,}+)",
    _EDGE + r"(?:xox[a-z]-[A-Za-z0-9-]{8,}+|xapp-[A-Za-z0-9-]{8,}+)",
    _EDGE + r"sk-(?=[A-Za-z_-]{0,256}[0-9])[A-Za-z0-9_-]{16,}+",
    _EDGE + r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{10,}+|whsec_[A-Za-z0-9+/=]{16,}+)",
    _EDGE + r"(?:AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}+|GOCSPX-[0-9A-Za-z_-]{20,}+)",
    _EDGE + r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+){0,3}",
    _EDGE + r"(?:npm_[A-Za-z0-9]{30,}+|pypi-[A-Za-z0-9_-]{20,}+|hf_[A-Za-z0-9]{20,}+)",
    _EDGE + r"(?:SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+|dop_v1_[a-f0-9]{32,}+|sbp_[a-f0-9]{32,}+)",
    r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{16,}+",
)
# A text with none of these in it, whatever their case, holds no such credential. Looking for them is cheap.
_SHAPE_SIGNS = (
    "://", "-----begin", "bearer", "basic", "cookie", "akia", "asia", "abia", "acca", "ghp_", "gho_", "ghu_", "ghs_",
    "ghr_", "github_pat", "glpat", "xox", "xapp", "sk-", "sk_", "rk_", "whsec", "aiza", "ya29", "gocspx", "eyj",
    "npm_", "pypi-", "hf_", "sg.", "dop_v1", "sbp_", "hooks.slack",
)  # fmt: skip
_NAME_SIGNS = ("token", "secret", "passw", "passphrase", "authoriz", "cookie", "key", "credential")
_NAME_TERM = (
    r"(?i:token|secret|passw|passphrase|authoriz|cookie|(?:api|private|access|account)[ _.-]?key|credential)"
)
# Names that say nothing are not matched at all: `error: token=abc` must not be read as one pair.
_PAIR = (
    r"(?<![\w.-])(?:(?P<option>--(?=[\w-]{0,128}?" + _NAME_TERM + r")[\w-]{1,128}+[ \t]{1,8})(?!-)"
    r"|(?P<name>(?i:api|private|access|account)[ ](?i:key)[\w.-]{0,64}+"
    r"|(?=[\w.-]{0,128}?" + _NAME_TERM + r")[\w.-]{1,128}+)"
    r"(?P<between>\\{0,4}[\"']?[ \t]{0,8}(?P<sign>[:=]|=>)[ \t]{0,8}))"
    r"(?:(?P<quoted>\\{1,4}[\"'])[^\"'\\]*+"
    r"|(?P<double>\")(?:[^\"\\]|\\.)*+"
    r"|(?P<single>')(?:[^'\\]|\\.)*+"
    r"|(?P<bare>(?:(?i:bearer|basic|token|digest|negotiate)[ \t]{1,8})?[^\s\"'\\,;&<>()\[\]{}]++))"
)
_NUMBER_OR_NOTHING = r"[+-]?[0-9][0-9.,_]*[a-z%]{0,2}|true|false|null|none|undefined|nan|nil"


class Redactor:
    """Masks secrets. Values are registered as they become known; the rest needs no state."""

    __slots__ = ("_forms", "_recent", "_registered", "version")

    def __init__(self) -> None:
        self.version = 0  # another number means that more is secret now
        self._registered: set[str] = set()
        self._recent: dict[str, None] = {}
        self._forms: tuple[EncodedForm, ...] | None = ()  # made when something is masked for the first time

    def register(self, value: str) -> None:
        """From now on hide `value` wherever it stands: in longer text, in addresses, in base64, in JSON inside JSON."""
        value = value.strip()
        if _can_be_hidden(value) and value not in self._registered:
            self._registered.add(value)
            self._forms = None
            self.version += 1

    def register_recent(self, values: Iterable[str]) -> None:
        """Hide these for a while, as arguments of a call that is under way: the last `MAX_RECENT` of all."""
        recent = self._recent
        for value in filter(_can_be_hidden, values):
            if value in recent:
                del recent[value]  # to the end, as the latest
            else:
                self._forms = None
                self.version += 1
            recent[value] = None
        while len(recent) > MAX_RECENT:
            del recent[next(iter(recent))]

    def hidden_values(self) -> list[str]:
        """All values that are hidden now."""
        return [*self._registered.copy(), *self._recent.copy()]

    def redact_text(self, text: str) -> str:
        """The text with every secret in it masked."""
        text = self.mask_registered(text)
        lowered = text.lower()
        if any(sign in lowered for sign in _SHAPE_SIGNS):
            text = _compiled("|".join(_SHAPES)).sub(_mask_shape, text)
        if any(sign in lowered for sign in _NAME_SIGNS):
            text = _compiled(_PAIR).sub(_mask_pair, text)
        return text

    def mask_registered(self, text: str) -> str:
        """The text with the registered values in it masked, and nothing else: for words of our own."""
        return self._without_registered(text) if self._registered or self._recent else text

    def redact_and_clip(self, text: str, size: int) -> str:
        """The beginning of a text, masked before it is cut: half a secret would not be recognised."""
        return self.redact_text(text[: 4 * size])[:size]

    def mask_registered_json(self, body: bytes) -> bytes:
        """JSON as it came, with the registered values in it masked."""
        if not self._registered and not self._recent:
            return body
        text = body.decode("utf-8", "surrogateescape")
        masked = self.mask_registered(text)
        return body if masked is text else masked.encode("utf-8", "surrogateescape")

    def redact_failure(self, problem: Failure) -> Failure:
        """The failure with every secret in it masked; the same one where there is none."""
        message, stderr, data = self.redact_text(problem.message), problem.stderr, problem.data
        if stderr is not UNSET:
            stderr = [self.redact_text(line) for line in stderr]
        if data is not UNSET:
            data = self._raw(data)
        if (message, stderr, data) == (problem.message, problem.stderr, problem.data):
            return problem
        return msgspec.structs.replace(problem, message=message, stderr=stderr, data=data)

    def _raw(self, body: Raw) -> Raw:
        try:
            value = msgspec.json.decode(body)
            masked = self.redact_value(value)
            return body if masked == value else Raw(msgspec.json.encode(masked))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return Raw(msgspec.json.encode(MASK))

    def redact_value(self, value: object, also: Collection[str] = ()) -> object:
        """A copy with every secret masked; what stands under a name in `also` is masked whatever it is."""
        return self._value(value, also, 0)

    def _value(self, value: object, also: Collection[str], depth: int) -> object:
        if isinstance(value, str):
            return self.redact_text(value)
        if value is None or isinstance(value, int | float):
            return value
        if isinstance(value, bytes | bytearray | memoryview | msgspec.Raw):
            text = bytes(value).decode("utf-8", "surrogateescape")
            return self.redact_text(text).encode("utf-8", "surrogateescape")
        if depth >= MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return {
                self._name(name): self._member(name, item, also, depth + 1) for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(item, also, depth + 1) for item in value]
        return value

    def _member(self, name: object, item: object, also: Collection[str], depth: int) -> object:
        if isinstance(name, str):
            if name in also:
                return MASK
            if is_secret_name(name):
                return _blanked(item, depth)
        return self._value(item, also, depth)

    def _name(self, name: object) -> object:
        return self.mask_registered(name) if isinstance(name, str) else name

    def _without_registered(self, text: str) -> str:
        if self._forms is None:
            hidden = sorted({*self._registered, *self._recent})
            self._forms = tuple(form for value in hidden for form in encoded_forms(value))
        # Places are found in the text as it came: masking one value must not tear another that overlaps it.
        spans = list(_spans(text, self._forms))
        for layer in unescape_layers(text):
            places = layer.starts
            spans += ((places[start], places[stop]) for start, stop in _spans(layer.text, self._forms))
        if not spans:
            return text
        parts: list[str] = []
        end = 0
        for start, stop in sorted(spans):
            if start >= end:
                parts += (text[end:start], MASK)
            end = max(end, stop)
        parts.append(text[end:])
        return "".join(parts)


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a value under this name is taken for a secret. Case and separators do not matter."""
    plain = _plain(name)
    return any(term in plain for term in NEVER_LOG)


def _can_be_hidden(value: str) -> bool:
    return len(value) >= MIN_REGISTERED and value not in MASK


def _plain(name: str) -> str:
    plain = name.lower()
    for separator in "_- .":
        plain = plain.replace(separator, "")
    # A tokenizer has no secrets.
    return plain.replace("tokeni", "")


def _blanked(value: object, depth: int) -> object:
    """The same shape with every text masked."""
    if value is None or isinstance(value, int | float) or value == "":
        return value
    if depth < MAX_DEPTH:
        if isinstance(value, dict):
            return {name: _blanked(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [_blanked(item, depth + 1) for item in value]
    return MASK


def _spans(text: str, wanted: Iterable[EncodedForm]) -> Iterator[tuple[int, int]]:
    for form in wanted:
        size = len(form.text)
        start = text.find(form.text)
        while start >= 0:
            yield max(0, start - form.before), min(len(text), start + size + form.after)
            start = text.find(form.text, start + size)


def _mask_shape(match: re.Match[str]) -> str:
    if match["url"]:
        return f"{match['url']}{MASK}@"
    return (match["scheme"] or match["cookie"] or "") + MASK


def _mask_pair(match: re.Match[str]) -> str:
    name, bare = match["option"] or match["name"], match["bare"]
    if not is_secret_name(name.strip()):
        return match[0]
    if bare is not None and _is_harmless(name, match["sign"], bare):
        return match[0]
    opening = match["quoted"] or match["double"] or match["single"] or ""
    return f"{name}{match['between'] or ''}{opening}{MASK}"


def _is_harmless(name: str, sign: str | None, bare: str) -> bool:
    if not any(character.isalnum() for character in bare):
        return True
    plain = _plain(name)
    if any(term in plain for term in _STRICT_TERMS):
        return False
    if re.fullmatch(_NUMBER_OR_NOTHING, bare, re.IGNORECASE):
        return True
    # "Unexpected token: expected a string" is a sentence.
    return sign == ":" and bare.rstrip(".!?").isalpha() and len(bare) < 16


@lru_cache(maxsize=8)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
