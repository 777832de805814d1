"""URIs of resources against allow and deny lists: no spelling of a denied resource passes.

The model of a server here is as lenient as any: it reads a URI in every way that some server might.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from urllib.parse import unquote

from hypothesis import example, given
from hypothesis import strategies as st

from switchboard_mcp.config.models import Expose
from switchboard_mcp.policy.access import access
from switchboard_mcp.policy.resource_uris import spellings
from tests.cases import each_case

SECRET = "mem://host/secret/key"
DENY = access(Expose(deny=["mem://host/secret*"]))
ALLOW = access(Expose(allow=["mem://host/public/*"]))


PARAMETERS = re.compile(r";[^/?]*")  # of a segment, which some servers ignore
OVERLONG = re.compile(r"%c0%ae", re.IGNORECASE)  # a dot, to decoders that accept what is not UTF-8


def without_invisible(text: str) -> str:
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def readings(uri: str) -> Iterator[str]:
    """Every resource that some server might give for a URI."""
    for decoded in (uri, unquote(uri), unquote(unquote(uri))):
        for normal in (decoded, unicodedata.normalize("NFKC", decoded)):
            for text in (normal, normal.replace("\\", "/")):
                for cut in (text, text.partition("#")[0], text.partition("#")[0].partition("?")[0]):
                    for plain in (
                        cut,
                        PARAMETERS.sub("", cut),
                        OVERLONG.sub(".", cut),
                        without_invisible(cut),
                    ):
                        yield from _resolved(plain.strip())


def _resolved(uri: str) -> Iterator[str]:
    yield uri
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?([^/]*)(.*)", uri, re.DOTALL)
    if found is None:
        return
    scheme, slashes, host, path = found[1].lower(), found[2] or "", found[3].lower(), found[4]
    for shown in {path, posixpath.normpath(re.sub("/+", "/", path)) if path else "", re.sub("/+", "/", path)}:
        yield f"{scheme}:{slashes}{host}{shown}"
        yield f"{scheme}:{slashes}{host}{shown.rstrip('/')}"


PARTS = [
    "mem:", "MEM:", "mem:/", "//", "/", "///", "host", "HOST", "hos%74", "secret", "s%65cret", "SECRET", "ｓecret",
    "public", "key", "..", ".", "%2e%2e", "%2E.", "．．", "%252e%252e", "%2f", "%2F", "%5c", "\\", "?x=1", "#f", "%",
    "%zz", "%00", "\t", " ", "\u200b", ";", "a", "user@", ":80", "%25", "é", "e\u0301",
    "%c0%ae", ";v=1", "\u00ad",
]  # fmt: skip
uris = st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.text(max_size=40)
near = st.tuples(st.sampled_from(["mem://host/public/", "mem://host/", "MEM://HOST/public/"]), uris).map(
    "".join
)


@given(uris | near)
@example("mem://host/public/../secret/key")
@example("mem://host/public/%2e%2e/secret/key")
@example("mem://host/public/%252e%252e/secret/key")
@example("mem://host//secret/key")
@example("mem://host/%73ecret/key")
@example("mem://host/secret\\key")
@example("MEM://HOST/secret/key")
@example("mem://host/secret?x")
@example("mem://host/./secret/key")
@example("mem://host/public/..%2fsecret/key")
@example("mem://host/ｓecret/key")
@example("mem://host/se\u00adcret/key")
@example("mem://host/;v=1/secret/key")
@example("mem://host;v=1/secret/key")
@example("mem://host/s;v=1ecret/key")
@example("mem://host/public/%c0%ae%c0%ae/secret/key")
def test_no_reading_of_a_permitted_uri_is_denied(uri: str) -> None:
    if DENY.permits_uri(uri):
        assert not [reading for reading in readings(uri) if fnmatchcase(reading, "mem://host/secret*")]


@given(uris | near)
@example("mem://host/public/../secret/key")
@example("mem://host/public/..\\secret/key")
@example("mem://host/public/a#/../../secret/key")
def test_every_reading_of_an_allowed_uri_is_allowed(uri: str) -> None:
    if ALLOW.permits_uri(uri):
        for reading in readings(uri):
            # Without its trailing slash or its query the folder itself may be read, which is no other resource.
            assert fnmatchcase(reading, "mem://host/public/*") or reading == "mem://host/public", reading


@given(uris)
def test_without_rules_a_uri_is_opaque(uri: str) -> None:
    assert access(Expose()).permits_uri(uri)


@each_case(
    "uri",
    [
        "file:///home/ada/notes.md",
        "file:///home/ada/my notes.md",
        "https://example.com/a/b?c=d&e=f",
        "urn:isbn:0451450523",
        "mem://a",
        "note://internal/übersicht",
        "db://table/1/",
        "screenshot://2026-11-16T10:00:00Z",
        "test://template/{id}/data",
        "file:///a%20b/c.txt",
    ],
)
def test_an_ordinary_uri_is_unambiguous(uri: str) -> None:
    assert spellings(uri)[0] == uri


@each_case(
    "uri",
    [
        "a://b/../c",
        "a://b/..",
        "a://../c",
        "a:../c",
        "a://b/./c",
        "a://b//c",
        "a://b/c\\d",
        "a://b/%2e%2e/c",
        "a://b/%2e./c",
        "a://b/c%2fd",
        "a://b/c%5Cd",
        "a://b/c%252e",
        "a://b/%zz",
        "a://b/%",
        "a://b/c#d",
        "a://b/c\x00",
        "a://b/\n",
        " a://b/c",
        "a://b/．．/c",
        "a://b?x=../c",
    ],
)
def test_an_ambiguous_uri_is_refused_as_soon_as_there_is_a_rule(uri: str) -> None:
    assert spellings(uri) == ()
    assert not access(Expose(deny=["other"])).permits_uri(uri)
    assert not access(Expose(allow=["*"])).permits_uri(uri)


@each_case("uri", ["a" * 1_000_000, "%41" * 300_000, "/." * 500_000, "//" * 500_000, "é" * 300_000])
def test_a_long_uri_costs_no_more_than_its_length(uri: str) -> None:
    spellings(uri)
