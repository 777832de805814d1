"""Masks secrets in everything that leaves the process: log fields, stderr tails, error texts.

Three kinds are masked: values registered as secret, credentials recognised by their shape, and values under a name
that suggests a secret. Numbers, booleans and null are kept, since `budgetTokens: 1200` is not a secret. The cost is
linear in the text: every pattern starts at the edge of a word and never backtracks. Not aware of where the text goes.
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
# Shorter values would mask parts of ordinary words.
MIN_REGISTERED = 4
# Values of `redactArgs` stay masked until this many newer ones have come: longer than a call is logged about.
MAX_RECENT = 64
# They are masked by pieces of this length, so that an argument of megabytes costs neither memory nor time.
RECENT_PIECE_CHARS = 4_096
# No more of a text is shown: masking takes up to 1 s for 1 MiB. Secrets up to the overlap are not cut in half.
MAX_SHOWN_CHARS = 32 * 1024
OVERLAP_CHARS = 4_096
# How much longer an encoded secret can be: `\\u00e4` in JSON in JSON, or percent-encoding done twice.
MAX_EXPANSION = 12
# Deeper than any real message, and far below Python's recursion limit.
MAX_DEPTH = 64

# Values under a name that contains one of these are never logged. Compared without separators and case.
NEVER_LOG = (
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passcode",
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
    "webhook",
    "accesscode",
    "mnemonic",
    "passwort",
    "pgpass",
)
# The same for names that end with one of these words: within longer words they mean something else.
LAST_WORDS = frozenset({"pass", "pwd", "pw", "pin", "otp", "dsn", "pat", "cred", "creds"})
# Variables of the shell that hold a path, and the outcome of a test.
_ORDINARY = frozenset({"PWD", "OLDPWD", "PASS", "Pass", "pass"})
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
# Under these names a number is a secret too.
_NUMERIC = frozenset({"pin", "otp", "passcode"})
MIN_NUMERIC = 1_000
MAX_NAME_END = 64
# Under these names even a bare number or word in a text is taken for a secret.
_STRICT_TERMS = (
    "secret",
    "passw",
    "passphrase",
    "passcode",
    "apikey",
    "privatekey",
    "accesskey",
    "accountkey",
    "accesscode",
    "mnemonic",
    "pgpass",
)

# The start of a word: what follows is not the middle of a longer one.
_EDGE = r"(?<![A-Za-z0-9_-])"
# Credentials by their shape: a pattern, and the signs in lower case of which a text must contain one to match it.
# Searching for the signs first is cheap and saves the expression for most texts.
_SHAPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Kept: the scheme, the user, the header's name. Masked: what follows.
    (r"(?P<url>://[^\s/?#@:\"'<>]{0,256}:)[^\s/?#\"'<>]{1,256}@", ("://",)),
    (
        _EDGE
        + r"(?P<scheme>(?i:bearer|basic)[ \t]{1,8})(?=[A-Za-z._~+/-]{0,256}[0-9=])[A-Za-z0-9._~+/=-]{8,}",
        ("bearer", "basic"),
    ),
    (_EDGE + r"(?P<cookie>(?i:set-cookie|cookie):[ \t]{0,8})[^\r\n\"']+", ("cookie",)),
    # Masked whole.
    (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,50}-----|\Z)",
        ("-----begin",),
    ),
    (_EDGE + r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])", ("akia", "asia", "abia", "acca")),
    (
        _EDGE + r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat", "glpat"),
    ),
    (_EDGE + r"(?:xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,})", ("xox", "xapp")),
    (_EDGE + r"sk-(?=[A-Za-z_-]{0,256}[0-9])[A-Za-z0-9_-]{16,}", ("sk-",)),
    (
        _EDGE + r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,})",
        ("sk_", "rk_", "whsec"),
    ),
    (
        _EDGE + r"(?:AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}|GOCSPX-[0-9A-Za-z_-]{20,})",
        ("aiza", "ya29", "gocspx"),
    ),
    (_EDGE + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}", ("eyj",)),
    (
        _EDGE + r"(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,})",
        ("npm_", "pypi-", "hf_"),
    ),
    (
        _EDGE + r"(?:SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|dop_v1_[a-f0-9]{32,}|sbp_[a-f0-9]{32,})",
        ("sg.", "dop_v1", "sbp_"),
    ),
    # The path of a webhook is its key.
    (
        (
            r"(?P<hook>(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/"
            r"|\.webhook\.office\.com/webhookb2/|outlook\.office\.com/webhook/|api\.telegram\.org/bot"
            r"|hooks\.zapier\.com/hooks/catch/))[^\s\"'<>?#\\]{4,1024}"
        ),
        ("hooks.slack", "/api/webhooks", "office.com/webhook", "telegram.org/bot", "hooks.zapier"),
    ),
)
_SHAPE_PATTERN = "|".join(pattern for pattern, _ in _SHAPES)
_SHAPE_SIGNS = tuple(sign for _, signs in _SHAPES for sign in signs)
_NAME_SIGNS = (
    *("token", "secret", "pass", "authoriz", "cookie", "key", "cred", "webhook", "session", "jwt", "bearer"),
    *("connection", "pwd", "pw", "pin", "otp", "dsn", "pat", "mnemonic", "access"),
)
_NAME_TERM = (
    r"(?:(?i:token|secret|passw|pgpass|mnemonic|access[ _.-]?code|passphrase"
    r"|passcode|authoriz|cookie|credential|webhook|jwt|bearer|session[_.-]?id"
    r"|(?:api|private|access|account|signing|encryption)[ _.-]?key|connection[_.-]?string)"
    r"|(?i:pass|pwd|pw|pin|otp|dsn|pat|creds?)(?![\w.-]))"
)
# Other names are not matched at all: `error: token=abc` must not be read as one pair.
_PAIR = (
    r"(?<![\w.-])(?:(?P<option>--(?=[\w.-]{0,128}?" + _NAME_TERM + r")[\w.-]{1,128}[ \t]{1,8})(?!-)"
    r"|(?P<name>(?i:api|private|access|account)[ ](?i:key)[\w.-]{0,64}"
    r"|(?=[\w.-]{0,128}?" + _NAME_TERM + r")[\w.-]{1,128})"
    r"(?P<between>\\{0,4}[\"']?[ \t]{0,8}(?P<sign>[:=]|=>)[ \t]{0,8}))"
    r"(?:(?P<quoted>\\{1,4}[\"'])[^\"'\\]*"
    r"|(?P<double>\")[^\"\\]*(?:\\.[^\"\\]*)*"
    r"|(?P<single>')[^'\\]*(?:\\.[^'\\]*)*"
    r"|(?P<bare>(?:(?i:bearer|basic|token|digest|negotiate)[ \t]{1,8})?[^\s\"'\\,;&<>()\[\]{}]+))"
)
_NUMBER_OR_NULL = r"[+-]?[0-9][0-9.,_]*[a-z%]{0,2}|true|false|null|none|undefined|nan|nil"


class Redactor:
    """Masks secrets. Values are registered as they become known; everything else is stateless."""

    __slots__ = ("_forms", "_recent", "_registered", "version")

    def __init__(self) -> None:
        self.version = 0  # increases whenever more values are masked
        self._registered: set[str] = set()
        self._recent: dict[str, None] = {}
        self._forms: tuple[EncodedForm, ...] | None = ()  # computed on first use

    def register(self, value: str) -> None:
        """Mask `value` from now on, wherever it appears: in longer text, in URLs, in base64, in JSON inside JSON."""
        value = value.strip()
        if _is_maskable(value) and value not in self._registered:
            self._registered.add(value)
            self._forms = None
            self.version += 1

    def register_recent(self, values: Iterable[str]) -> None:
        """Mask these values for a while, as arguments of a call in progress: the last `MAX_RECENT` of all."""
        recent = self._recent
        for value in filter(_is_maskable, _pieces(values)):
            if value in recent:
                del recent[value]  # move to the end, as the latest
            else:
                self._forms = None
                self.version += 1
            recent[value] = None
        while len(recent) > MAX_RECENT:
            del recent[next(iter(recent))]

    def redact_text(self, text: str) -> str:
        """Return the text with every secret masked. Of a text of megabytes, only the beginning is returned."""
        size = len(text)
        overlap = max(OVERLAP_CHARS, MAX_EXPANSION * max(map(len, self._registered), default=0))
        if size > MAX_SHOWN_CHARS + overlap:
            shown = self._redact_whole(text[: MAX_SHOWN_CHARS + overlap])[:-overlap]
            return f"{shown}… ({size:,} characters)"
        return self._redact_whole(text)

    def _redact_whole(self, text: str) -> str:
        text = self.mask_registered(text)
        lowered = text.lower()
        if any(sign in lowered for sign in _SHAPE_SIGNS):
            text = _compiled(_SHAPE_PATTERN).sub(_mask_shape, text)
        if any(sign in lowered for sign in _NAME_SIGNS):
            text = _compiled(_PAIR).sub(_mask_pair, text)
        return text

    def redact_uncut(self, text: str) -> str:
        """Return the whole text, however long: registered values are masked, other secrets if it is not too long."""
        return self.redact_text(text) if len(text) <= MAX_SHOWN_CHARS else self.mask_registered(text)

    def mask_registered(self, text: str) -> str:
        """Return the text with only the registered values masked, for texts of our own."""
        return self._mask_forms(text) if self._registered or self._recent else text

    def redact_and_clip(self, text: str, size: int) -> str:
        """Return the start of a text, masked before it is cut: half a secret would not be recognised."""
        return self.redact_text(text[: self.chars_to_keep(size)])[:size]

    def chars_to_keep(self, size: int) -> int:
        """Return the length to cut a text to before it is masked: no secret that begins within `size` is cut."""
        longest = max(map(len, (*self._registered, *self._recent)), default=0)
        return max(4 * size, size + MAX_EXPANSION * longest)

    def mask_registered_json(self, body: bytes) -> bytes:
        """Return encoded JSON with the registered values masked."""
        if not self._registered and not self._recent:
            return body
        text = body.decode("utf-8", "surrogateescape")
        masked = self.mask_registered(text)
        return body if masked is text else masked.encode("utf-8", "surrogateescape")

    def redact_failure(self, problem: Failure) -> Failure:
        """Return the failure with every secret masked; the same object if it has none."""
        message, stderr, data = self.redact_text(problem.message), problem.stderr, problem.data
        if stderr is not UNSET:
            stderr = [self.redact_text(line) for line in stderr]
        if data is not UNSET:
            data = self._redact_raw(data)
        if (message, stderr, data) == (problem.message, problem.stderr, problem.data):
            return problem
        return msgspec.structs.replace(problem, message=message, stderr=stderr, data=data)

    def _redact_raw(self, body: Raw) -> Raw:
        if len(memoryview(body)) > MAX_SHOWN_CHARS:
            return Raw(msgspec.json.encode(f"{MASK} ({len(memoryview(body)):,} bytes)"))
        try:
            value = msgspec.json.decode(body)
            masked = self.redact_value(value)
            return body if masked == value else Raw(msgspec.json.encode(masked))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return Raw(msgspec.json.encode(MASK))

    def redact_value(self, value: object, also: Collection[str] = ()) -> object:
        """Return a copy with every secret masked; values under a name in `also` are always masked."""
        return self._redact(value, also, 0)

    def _redact(self, value: object, also: Collection[str], depth: int) -> object:
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
                self._redact_name(name): self._redact_member(name, item, also, depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._redact(item, also, depth + 1) for item in value]
        return value

    def _redact_member(self, name: object, item: object, also: Collection[str], depth: int) -> object:
        if isinstance(name, str):
            if name in also:
                return MASK
            if is_secret_name(name):
                if isinstance(item, int) and abs(item) >= MIN_NUMERIC and _last_word(name) in _NUMERIC:
                    return MASK
                return _mask_texts(item, depth)
        return self._redact(item, also, depth)

    def _redact_name(self, name: object) -> object:
        return self.mask_registered(name) if isinstance(name, str) else name

    def _mask_forms(self, text: str) -> str:
        if self._forms is None:
            hidden = sorted({*self._registered, *self._recent})
            self._forms = tuple(form for value in hidden for form in encoded_forms(value))
        # Positions are found in the original text: masking one value must not split another that overlaps it.
        spans = list(_spans(text, self._forms))
        for layer in unescape_layers(text):
            starts = layer.starts
            spans += ((starts[start], starts[stop]) for start, stop in _spans(layer.text, self._forms))
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
    """Return True if a value under this name is taken for a secret. Case and separators are ignored."""
    plain = _normalize(name)
    if any(term in plain for term in NEVER_LOG):
        return True
    return name not in _ORDINARY and _last_word(name) in LAST_WORDS


def _last_word(name: str) -> str:
    """Return the last word of a name such as `DB_PASS`, `db-pass` or `dbPass`, in lower case."""
    words = re.findall(_WORD, name[-MAX_NAME_END:])
    return words[-1].lower() if words else ""


def _pieces(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        for start in range(0, min(len(value), MAX_RECENT * RECENT_PIECE_CHARS), RECENT_PIECE_CHARS):
            yield value[start : start + RECENT_PIECE_CHARS]


def _is_maskable(value: str) -> bool:
    return len(value) >= MIN_REGISTERED and value not in MASK


def _normalize(name: str) -> str:
    plain = name.lower()
    for separator in "_- .":
        plain = plain.replace(separator, "")
    # A tokenizer is not a secret.
    return plain.replace("tokeni", "")


def _mask_texts(value: object, depth: int) -> object:
    """Return the same structure with every text masked."""
    if value is None or isinstance(value, int | float) or value == "":
        return value
    if depth < MAX_DEPTH:
        if isinstance(value, dict):
            return {name: _mask_texts(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [_mask_texts(item, depth + 1) for item in value]
    return MASK


def _spans(text: str, forms: Iterable[EncodedForm]) -> Iterator[tuple[int, int]]:
    for form in forms:
        size = len(form.text)
        start = text.find(form.text)
        while start >= 0:
            yield max(0, start - form.before), min(len(text), start + size + form.after)
            start = text.find(form.text, start + size)


def _mask_shape(match: re.Match[str]) -> str:
    if match["url"]:
        return f"{match['url']}{MASK}@"
    return (match["scheme"] or match["cookie"] or match["hook"] or "") + MASK


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
    plain, last = _normalize(name), _last_word(name)
    if any(term in plain for term in _STRICT_TERMS):
        return False
    if last in LAST_WORDS:
        return len(bare) < MIN_REGISTERED or bare.lower() in ("true", "false", "null", "none", "undefined")
    if re.fullmatch(_NUMBER_OR_NULL, bare, re.IGNORECASE):
        return True
    # "Unexpected token: expected a string" is a sentence.
    return sign == ":" and bare.rstrip(".!?").isalpha() and len(bare) < 16


@lru_cache(maxsize=8)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
