"""Records what a host receives from a peculiar child: the same conversation, with or without a proxy.

`Line` is how a test talks: any front of Switchboard, or the child itself over its own transport. What is compared is
every byte of what belongs to the child; ids and tokens are each side's own.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

Json = dict[str, Any]
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ARGS = rb'{"z":123456789012345678901234567890,"a":1.0,"c":1E+2,"g":"\u00e9\/","h":null,"i":{"nested":[{}]}}'
# Members of results that only the modern era has.
OF_ONE_ERA = frozenset({"resultType", "ttlMs", "cacheScope"})
# What the host's own side says to whoever asks.
REPLY = {"vendor/ask": {"big": 98765432109876543210, "ok": [1.5, None]}}


class Line(Protocol):
    """A connection that is ready to be used, in one of the eras."""

    modern: bool

    def exchange(self, message: bytes) -> list[bytes]:
        """Send a request; every message up to its answer, which is the last. Questions are answered with REPLY."""

    def tell(self, message: bytes) -> None:
        """Send a notification."""


def conversation(line: Line) -> dict[str, Any]:
    """Everything that a host can see of the child, by what was asked."""
    seen: dict[str, Any] = {}
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        seen[method] = _ask(line, method, b"{}")
    for tool in ("odd", "fail", "echo"):
        seen[tool] = _ask(
            line, "tools/call", b'{"name":"%b","arguments":%b,"x":{"y":1.0}}' % (tool.encode(), ARGS)
        )
    seen["without arguments"] = _ask(line, "tools/call", b'{"name":"echo"}')
    seen["speak"] = _ask(
        line, "tools/call", b'{"name":"speak","arguments":{}}', meta={"progressToken": "mine", "v.com/a": 1}
    )
    seen["prompt"] = _ask(line, "prompts/get", b'{"name":"p","arguments":{"a":"1"},"x":1E1}')
    for uri in (b"odd://a", b"odd://7"):
        seen[uri.decode()] = _ask(line, "resources/read", b'{"uri":"%b","x":[1]}' % uri)
    for ref in (b'{"type":"ref/prompt","name":"p","t":1}', b'{"type":"ref/resource","uri":"odd://{id}"}'):
        params = b'{"ref":%b,"argument":{"name":"a","value":"v","x":1},"context":{"y":2}}' % ref
        seen[f"complete {ref.decode()}"] = _ask(line, "completion/complete", params)
    seen["vendor/thing"] = _ask(line, "vendor/thing", b'{"deep":{"n":12345678901234567890}}')
    seen["vendor/none"] = _ask(line, "vendor/none", b"{}")
    if not line.modern:
        seen["vendor/scalar"] = _ask(line, "vendor/scalar", b"{}")
        line.tell(
            b'{"jsonrpc":"2.0","method":"notifications/vendor/ping","params":{"n":12345678901234567890,"f":1.0}}'
        )
        seen["vendor/heard"] = _ask(line, "vendor/heard", b"{}")
    return seen


def _ask(line: Line, method: str, params: bytes, meta: Json | None = None) -> list[object]:
    members = exact(params)
    told: Json = dict(meta or {})
    if line.modern:
        told |= {
            PREFIX + "protocolVersion": MODERN,
            PREFIX + "clientCapabilities": {},
            PREFIX + "logLevel": "debug",
        }
    if told:
        extra = b'"_meta":' + json.dumps(told).encode()
        params = params[:-1] + (b"," if members else b"") + extra + b"}"
    message = b'{"jsonrpc":"2.0","id":"%b","method":"%b","params":%b}' % (
        method.encode(),
        method.encode(),
        params,
    )
    return [_own(exact(heard)) for heard in line.exchange(message)]


def exact(data: bytes) -> Any:
    """JSON with every number as it is spelt and every double member; in which order members come has no meaning."""

    def members(pairs: list[tuple[str, Any]]) -> Any:
        return tuple(sorted(pairs, key=lambda pair: pair[0]))

    def number(spelling: str) -> Any:
        return ("number", spelling)

    return json.loads(data, parse_int=number, parse_float=number, object_pairs_hook=members)


def _own(message: Any) -> object:
    """A message without what is of the hop."""
    return tuple(member for member in message if member[0] not in ("id", "jsonrpc"))


def between_eras(messages: list[Any]) -> list[Any]:
    """Return a result without the members that only one protocol era has: its kind and lifetime."""

    def common(name: str, value: Any) -> tuple[str, Any]:
        if name != "result" or not isinstance(value, tuple):
            return name, value
        return name, tuple(member for member in value if member[0] not in OF_ONE_ERA)

    return [tuple(common(*member) for member in message) for message in messages]
