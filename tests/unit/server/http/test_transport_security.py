from __future__ import annotations

from switchboard_mcp.server.http.transport_security import (
    allowed_hosts,
    host_name,
    is_origin_allowed,
    split_address,
)
from tests.cases import each_case

MALFORMED = (
    ":80",
    ":",
    "a:b",
    "localhost:",
    "localhost: 80",
    "localhost :80",
    " localhost",
    "localhost ",
    "localhost\t",
    "localhost:80 ",
    "localhost:+80",
    "localhost:-80",
    "localhost:65536",
    "localhost:99999999999",
    "localhost:\xb2",
    "localhost:80.evil",
    "localhost:80:80",
    "localhost@evil.com",
    "evil.com@localhost",
    "evil.com#localhost",
    "localhost/",
    "localhost/evil.com",
    "localhost?x",
    "localhost,evil.com",
    "localhost%2eevil.com",
    "localhost%00",
    "localhost\x00.evil",
    "localhost\\evil",
    "http://localhost",
    "//localhost",
    "[::1].evil",
    "[::1]evil",
    "[::1]evil:80",
    "[::1]:80.evil",
    "[::1]:",
    "[::1]:evil",
    "[::1]]",
    "[[::1]]",
    "[::1",
    "::1]",
    "::1",
    "::1:80",
    "[]",
    "[]:80",
    "[localhost]",
    "[127.0.0.1]",
    "[::1%lo]",
    "[::1%25lo]:80",
    "[v1.x]",
    "evil.com:80:80",
    "l\xf6calhost",
    "*",
)


@each_case(
    ("authority", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:80", "localhost"),
        ("127.0.0.1:3100", "127.0.0.1"),
        ("[::1]:3100", "::1"),
        ("[::1]", "::1"),
        ("", ""),
        ("[fd00::1.2.3.4]:1", "fd00::1.2.3.4"),
        ("my_host-1.internal:65535", "my_host-1.internal"),
        *((malformed, "") for malformed in MALFORMED),
    ],
)
def test_the_name_in_an_authority(authority: str, name: str) -> None:
    assert host_name(authority) == name


@each_case(
    ("host", "address", "allowed", "names"),
    [
        ("127.0.0.1", "127.0.0.1", [], {"127.0.0.1", "localhost", "::1"}),
        ("127.1.2.3", "127.1.2.3", [], {"127.1.2.3", "127.0.0.1", "localhost", "::1"}),
        ("192.168.1.5", "192.168.1.5", [], {"192.168.1.5"}),
        ("0.0.0.0", "0.0.0.0", [], {"127.0.0.1", "localhost", "::1"}),
        ("0", "0.0.0.0", [], {"0", "127.0.0.1", "localhost", "::1"}),
        ("::", "::", ["Gateway.Internal"], {"127.0.0.1", "localhost", "::1", "gateway.internal"}),
        ("gateway", "192.168.1.5", ["[fd00::1]"], {"gateway", "192.168.1.5", "fd00::1"}),
    ],
)
def test_the_names_it_goes_by(host: str, address: str, allowed: list[str], names: set[str]) -> None:
    assert allowed_hosts(host, address, allowed) == names


@each_case("allowed", ["localhost", "127.0.0.1"])
@each_case("malformed", MALFORMED)
def test_no_malformed_host_is_allowed(malformed: str, allowed: str) -> None:
    assert host_name(malformed.replace("localhost", allowed)) not in allowed_hosts(allowed, allowed, [""])


@each_case(
    ("origin", "welcome"),
    [
        ("http://localhost:3100", True),
        ("https://LOCALHOST:3100", True),
        ("http://localhost:3101", False),
        ("http://localhost", False),
        ("http://localhost:3100.evil.com", False),
        ("ftp://localhost:3100", False),
        ("localhost:3100", False),
        ("null", False),
        ("", False),
        ("https://app.example.com", True),
        ("https://APP.example.com/", True),
        ("http://app.example.com", False),
    ],
)
def test_pages_of_its_own_and_those_that_are_allowed_may_come(origin: str, welcome: bool) -> None:
    assert is_origin_allowed(origin, "localhost:3100", frozenset({"https://app.example.com"})) is welcome


@each_case(
    ("text", "found"),
    [
        ("3100", ("here", 3100)),
        ("0", ("here", 0)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:80", ("::1", 80)),
        ("name:65535", ("name", 65535)),
        ("65536", None),
        ("::1:80", None),
        (":80", None),
        ("[]:80", None),
        ("name:", None),
        ("name", None),
        ("-1", None),
        ("٣", None),
        ("", None),
    ],
)
def test_an_address_on_the_command_line(text: str, found: tuple[str, int] | None) -> None:
    assert split_address(text, "here") == found
