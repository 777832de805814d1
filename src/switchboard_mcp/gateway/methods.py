"""What a host may ask: one function a method, and the table that says in which era each exists."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.core import envelope, eras, jsonrpc, suitecall
from switchboard_mcp.core.envelope import LEVELS
from switchboard_mcp.core.ranking import nearest
from switchboard_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND, Failure, failure, tool_result
from switchboard_mcp.gateway import offers
from switchboard_mcp.gateway.calls import PlainParams
from switchboard_mcp.gateway.forward import RETRY_MEMBERS, Forward
from switchboard_mcp.gateway.inbound import Inbound
from switchboard_mcp.gateway.session import Listen
from switchboard_mcp.gateway.suites import Found

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway

INSTRUCTIONS = (
    "Each tool here is a suite: one MCP server with its subtools. "
    'Call a suite with {"action":"introspect"} to see its subtools (optional "query", or "subtool" for one in full), '
    'then with {"action":"call","subtool":NAME,"args":{…}} to use one.'
)
CAPABILITIES: dict[str, dict[str, bool]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
IDENTITY = {"name": "switchboard", "version": __version__}
RESOURCE_NOT_FOUND = -32002
# What a modern host may listen to, by its name in the request, and the notification it stands for.
CHANGES = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}

_decode_text = msgspec.json.Decoder(str).decode


class InitializeParams(Struct, rename="camel"):
    """The part of `initialize` that we look at."""

    protocol_version: str | None = ""
    capabilities: Raw | UnsetType = UNSET


class LevelParams(Struct):
    """Params of `logging/setLevel`."""

    level: str


class CallParams(Struct, rename="camel"):
    """Params of `tools/call`."""

    name: str
    arguments: Raw | UnsetType = UNSET
    input_responses: Raw | UnsetType = UNSET
    request_state: Raw | UnsetType = UNSET


class Reference(Struct):
    """What a completion is for."""

    type: str = ""
    name: str = ""
    uri: str = ""


class Wishes(Struct, rename="camel"):
    """What a modern host wants to hear of."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []


_decode_initialize = msgspec.json.Decoder(InitializeParams).decode
_decode_level = msgspec.json.Decoder(LevelParams).decode
_decode_call = msgspec.json.Decoder(CallParams).decode
_decode_reference = msgspec.json.Decoder(Reference).decode
_decode_wishes = msgspec.json.Decoder(Wishes).decode
_decode_responses = msgspec.json.Decoder(dict[str, Raw]).decode


def initialize(gateway: Gateway, inbound: Inbound) -> None:
    """The handshake: version, capabilities, and how suites are used."""
    params = _decode_initialize(inbound.params)
    session = inbound.session
    session.version = eras.answer_host(params.protocol_version or "")
    if params.capabilities is not UNSET and envelope.is_object(params.capabilities):
        session.capabilities = bytes(params.capabilities)
    session.initialized = True
    inbound.answer(
        jsonrpc.encode(
            {
                "protocolVersion": session.version,
                "capabilities": CAPABILITIES,
                "serverInfo": IDENTITY,
                "instructions": gateway.instructions(),
            }
        )
    )


def discover(gateway: Gateway, inbound: Inbound) -> None:
    """The same for the era without handshakes."""
    inbound.answer(
        jsonrpc.encode(
            {
                "supportedVersions": list(eras.MODERN_VERSIONS),
                "capabilities": CAPABILITIES,
                "instructions": gateway.instructions(),
                "_meta": {envelope.SERVER: IDENTITY},
            }
        ),
        cacheable=True,
    )


def ping(gateway: Gateway, inbound: Inbound) -> None:
    """Answer."""
    inbound.answer(b"{}")


def set_level(gateway: Gateway, inbound: Inbound) -> None:
    """From which level on the host wants log messages."""
    level = _decode_level(inbound.params).level
    if level not in LEVELS:
        inbound.refuse(INVALID_PARAMS, f"Unknown log level '{level}'; one of {', '.join(LEVELS)}.")
        return
    inbound.session.log_level = level
    gateway.spread_log_level()
    inbound.answer(b"{}")


def list_tools(gateway: Gateway, inbound: Inbound) -> None:
    """One tool per suite, and the tools of children shown directly."""
    gateway.when_known(inbound.modern, lambda: inbound.answer(gateway.listed_tools(), cacheable=True))


def list_offers(gateway: Gateway, inbound: Inbound, method: str) -> None:
    """Prompts, resources or templates of all children."""
    kind = offers.KINDS[method]

    def answer() -> None:
        inbound.answer(offers.listed(gateway.suites.values(), kind), cacheable=True)

    gateway.when_known(inbound.modern, answer)


def call_tool(gateway: Gateway, inbound: Inbound) -> None:
    """A suite tool in a form that needs explaining, a direct tool, a request that was parked, or a tool nobody has."""
    params = _decode_call(inbound.params)
    if params.request_state is not UNSET and _resumed(gateway, inbound, params):
        return
    suite = gateway.suites.get(params.name)
    if suite is not None and not suite.direct:
        asked = suitecall.read(params.arguments, suite.child.name)
        if isinstance(asked, Failure):
            inbound.answer(tool_result(asked))
        else:
            plain = PlainParams(
                params.name, asked, inbound.meta, params.input_responses, params.request_state
            )
            gateway.begin_call(inbound.session, inbound.route, inbound.id, suite, plain)
    else:
        gateway.when_known(inbound.modern, partial(_call_direct, gateway, inbound, params))


def _call_direct(gateway: Gateway, inbound: Inbound, params: CallParams) -> None:
    found = gateway.direct_tools().get(params.name)
    if found is None:
        near = nearest(params.name, [*gateway.suites, *gateway.direct_tools()])
        meant = f" Did you mean {', '.join(near)}?" if near else ""
        inbound.fail(failure("unknown_tool", f"Unknown tool '{params.name}'.{meant}", nearest=near))
        return
    members = {**inbound.members, "name": Raw(jsonrpc.encode(found.name))}
    Forward(inbound, found.suite.child, "tools/call", members).begin()


def _resumed(gateway: Gateway, inbound: Inbound, params: CallParams) -> bool:
    """Whether this is a modern host coming back for a request that is parked here."""
    assert params.request_state is not UNSET
    state = envelope.text_of(params.request_state)
    if state is None:
        inbound.refuse(INVALID_PARAMS, "requestState must be the string that was given.")
        return True
    responses = {} if params.input_responses is UNSET else _decode_responses(params.input_responses)
    return gateway.desk.resume(
        inbound.session,
        inbound.route,
        inbound.id,
        state,
        gateway.call_fingerprint(inbound, params),
        responses,
    )


def get_prompt(gateway: Gateway, inbound: Inbound) -> None:
    """A prompt of the child it names."""
    name = _text(inbound, "name")
    found = offers.find_prompt(gateway.suites.values(), name)
    if found is None:
        inbound.refuse(INVALID_PARAMS, f"Unknown prompt '{name}'.")
        return
    _forward(gateway, inbound, found, "prompts/get", {**inbound.members, "name": _raw(found.name)})


def read_resource(gateway: Gateway, inbound: Inbound, method: str = "resources/read") -> None:
    """A resource of the child it names: read it, or follow its changes."""
    uri = _text(inbound, "uri")
    found = offers.find_resource(gateway.suites.values(), uri)
    if found is None:
        code = INVALID_PARAMS if inbound.modern else RESOURCE_NOT_FOUND
        inbound.refuse(code, f"Unknown resource '{uri}'.", Raw(jsonrpc.encode({"uri": uri})))
        return
    if method == "resources/subscribe":
        inbound.session.subscriptions.add(uri)
    elif method == "resources/unsubscribe":
        inbound.session.subscriptions.discard(uri)
    rename = partial(offers.rename_contents, found.suite) if method == "resources/read" else None
    _forward(gateway, inbound, found, method, {**inbound.members, "uri": _raw(found.name)}, rename)


def complete(gateway: Gateway, inbound: Inbound) -> None:
    """Completion for a prompt's or a template's argument."""
    reference = _decode_reference(inbound.members.get("ref", Raw(b"{}")))
    all_suites = gateway.suites.values()
    if reference.type == "ref/prompt":
        found = offers.find_prompt(all_suites, reference.name)
        name = "name"
    else:
        found = offers.find_resource(all_suites, reference.uri)
        name = "uri"
    if found is None:
        inbound.refuse(INVALID_PARAMS, f"Unknown reference '{reference.name or reference.uri}'.")
        return
    told = _raw({"type": reference.type, name: found.name})
    _forward(gateway, inbound, found, "completion/complete", {**inbound.members, "ref": told})


def listen(gateway: Gateway, inbound: Inbound) -> None:
    """A modern host's subscription to changes; it stays open until the host cancels it or goes."""
    if "notifications" not in inbound.members:
        inbound.refuse(INVALID_PARAMS, "subscriptions/listen needs `notifications`.")
        return
    wishes = _decode_wishes(inbound.members["notifications"])
    told: dict[str, object] = {
        name: True
        for name, field in zip(CHANGES, Wishes.__struct_fields__, strict=False)
        if getattr(wishes, field)
    }
    if wishes.resource_subscriptions:
        told["resourceSubscriptions"] = wishes.resource_subscriptions
    subscription = Listen(
        id=inbound.id,
        route=inbound.route,
        kinds=frozenset(CHANGES[name] for name in CHANGES if name in told),
        uris=frozenset(wishes.resource_subscriptions),
    )
    inbound.session.listens[inbound.id] = subscription
    subscription.tell("notifications/subscriptions/acknowledged", {"notifications": told})
    for uri in wishes.resource_subscriptions:
        gateway.follow_resource(inbound, uri)


def unknown(gateway: Gateway, inbound: Inbound, method: str) -> None:
    """A method nobody knows goes to the one child that is shown directly, if there is one."""
    direct = [suite for suite in gateway.suites.values() if suite.direct]
    if len(direct) == 1 and len(gateway.suites) == 1 and not inbound.modern:
        Forward(inbound, direct[0].child, method, inbound.members).begin()
    else:
        inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {method}")


def _forward(
    gateway: Gateway,
    inbound: Inbound,
    found: Found,
    method: str,
    members: dict[str, Raw],
    rewrite: Callable[[Raw], bytes] | None = None,
) -> None:
    request = Forward(inbound, found.suite.child, method, members, rewrite)
    state = envelope.text_of(members.get("requestState"))
    if state is not None:
        responses = _decode_responses(members["inputResponses"]) if "inputResponses" in members else {}
        fingerprint = request.fingerprint()
        if gateway.desk.resume(inbound.session, inbound.route, inbound.id, state, fingerprint, responses):
            return
    request.begin()


def _text(inbound: Inbound, name: str) -> str:
    if name not in inbound.members:
        raise msgspec.ValidationError(f"Object missing required field `{name}`")
    return _decode_text(inbound.members[name])


def _raw(value: object) -> Raw:
    return Raw(jsonrpc.encode(value))


class Method(Struct, frozen=True):
    """A method, and the eras it exists in."""

    serve: Callable[[Gateway, Inbound], None]
    handshake: bool = True
    modern: bool = True


METHODS: dict[str, Method] = {
    "initialize": Method(initialize, modern=False),
    "server/discover": Method(discover, handshake=False),
    "ping": Method(ping, modern=False),
    "logging/setLevel": Method(set_level, modern=False),
    "tools/list": Method(list_tools),
    "tools/call": Method(call_tool),
    "prompts/list": Method(partial(list_offers, method="prompts/list")),
    "prompts/get": Method(get_prompt),
    "resources/list": Method(partial(list_offers, method="resources/list")),
    "resources/templates/list": Method(partial(list_offers, method="resources/templates/list")),
    "resources/read": Method(read_resource),
    "resources/subscribe": Method(partial(read_resource, method="resources/subscribe"), modern=False),
    "resources/unsubscribe": Method(partial(read_resource, method="resources/unsubscribe"), modern=False),
    "completion/complete": Method(complete),
    "subscriptions/listen": Method(listen, handshake=False),
}
__all__ = ["METHODS", "RETRY_MEMBERS"]
