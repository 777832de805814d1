"""Decides which spellings of a resource's URI allow and deny lists may be compared with.

Servers read a URI in their own way: some resolve `..`, some decode `%2f`, some ignore case, a query or a trailing
slash. A URI that a server may read as another one is either refused, or must be permitted in every one of its
spellings.
"""

from __future__ import annotations

import re

from switchboard_mcp.suites.invisible_characters import find_invisible

MAX_URI_CHARS = 64 * 1024
# Characters that separate the parts of a URI, or may be read as such.
_STRUCTURE = "/\\.%?#:@;&="
# A part between separators that is `.` or `..`.
_DOT_SEGMENT = re.compile(r"(?:^|[/?&;=:])\.\.?(?:$|[/?&;=:])")
# Most URIs: one spelling, apart from a trailing slash.
_PLAIN = re.compile(r"[a-z][a-z0-9+.-]*:(?://[a-z0-9-][a-z0-9.-]*)?(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_ESCAPED_BYTE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PARAMETERS = re.compile(r";[^/?]*")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# White space and control characters, which some servers strip; they have no place in a URI but a blank within it.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff]|^ | $")


def spellings(uri: str) -> tuple[str, ...]:
    """Return the spellings of a URI that a server may read as the same one, the URI itself first.

    Empty if the URI is ambiguous: with dot segments, empty segments, backslashes, a fragment, invalid or double
    escapes, escaped separators, or invisible characters. Empty also if it is too long to be compared in a short time.
    """
    if len(uri) <= MAX_URI_CHARS and _PLAIN.fullmatch(uri) is not None:
        return (uri, uri)
    plain = _decode_unreserved(uri) if len(uri) <= MAX_URI_CHARS else None
    if plain is None or _UNPRINTABLE.search(uri) is not None:
        return ()
    if not plain.isascii():
        from unicodedata import normalize  # only for the URIs that need it

        if find_invisible(plain):
            return ()
        folded = normalize("NFKC", plain)
        if any(folded.count(mark) != plain.count(mark) for mark in _STRUCTURE):
            return ()
        plain = folded
    scheme = _SCHEME.match(plain)
    start = scheme.end() if scheme is not None else 0
    rest = plain[start:]
    if "\\" in rest or "#" in rest or _DOT_SEGMENT.search(rest) is not None:
        return ()
    authority, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    if "//" in (path.partition("?")[0] if not slash else slash + path.partition("?")[0]):
        return ()
    lowered = plain[:start].lower() + (
        f"//{_lower_host(authority)}{slash}{path}" if rest[:2] == "//" else rest
    )
    without_query = lowered.partition("?")[0]
    uris: tuple[str, ...] = (
        uri,
        plain,
        lowered,
        lowered.rstrip("/"),
        without_query,
        without_query.rstrip("/"),
    )
    if ";" in without_query:  # parameters of segments, which some servers ignore
        bare = _PARAMETERS.sub("", without_query)
        if "//" in bare[start + 2 :]:
            return ()
        uris = (*uris, bare, bare.rstrip("/"), _PARAMETERS.sub("", lowered))
    return (uri, plain, *dict.fromkeys(uris[2:]))


def _decode_unreserved(uri: str) -> str | None:
    """Decode the escapes that never need one; None if an escape is invalid, or hides a separator or another escape."""
    if "%" not in uri:
        return uri
    if uri.count("%") != len(_ESCAPE.findall(uri)):
        return None
    ambiguous = False

    def decoded(match: re.Match[str]) -> str:
        nonlocal ambiguous
        character = chr(int(match[1], 16))
        # `%25` is a percent sign: what follows may be decoded once more.
        ambiguous = ambiguous or character in "/\\%" or character < " " or character == "\x7f"
        return character if character in _UNRESERVED else match[0].upper()

    plain = _ESCAPE.sub(decoded, uri)
    return None if ambiguous or not _is_utf8(plain) else plain


def _is_utf8(uri: str) -> bool:
    """Return False if the escapes are not UTF-8: lenient decoders read a dot in `%c0%ae`."""
    try:
        _ESCAPED_BYTE.sub(lambda match: bytes((int(match[1], 16),)), uri.encode()).decode()
    except UnicodeError:  # also for a lone surrogate
        return False
    return True


def _lower_host(authority: str) -> str:
    user, at, host = authority.rpartition("@")
    return user + at + host.lower()


def matches_template(template: str, uri: str) -> bool:
    """Return True if a URI may result from a template: it begins and ends as the template does."""
    start, brace, rest = template.partition("{")
    end = rest.rpartition("}")[2]
    return bool(brace and start) and uri.startswith(start) and uri[len(start) :].endswith(end)
