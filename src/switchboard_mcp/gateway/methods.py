"""The methods a host may call: one function each, and the table of the protocol versions each exists in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND, Failure, failure, tool_result
from switchboard_mcp.gateway import prompts_resources
from switchboard_mcp.gateway.client_request import ResumeResult
from switchboard_mcp.gateway.forward import ForwardedRequest
from switchboard_mcp.gateway.incoming import NO_PARAMS, RETRY_MEMBERS, IncomingRequest
from switchboard_mcp.gateway.subscriptions import SubscribeRequest, listen, unsubscribe
from switchboard_mcp.gateway.suites.child_suite import ChildSuite, ResolvedName
from switchboard_mcp.gateway.suites.suite_tools import PlainParams
from switchboard_mcp.gateway.suites.tool_readiness import when_tools_known
from switchboard_mcp.protocol import jsonrpc, message_meta, versions
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.message_meta import LEVELS
from switchboard_mcp.protocol.method_traits import PROMPT_REF, traits_of
from switchboard_mcp.suites import suite_arguments
from switchboard_mcp.suites.fuzzy import nearest

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway

IDENTITY = {"name": "switchboard", "version": __version__}


class InitializeParams(Struct, rename="camel"):
    """The params of `initialize` that are used here."""

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
    """The object of a completion."""

    type: str = ""
    name: str = ""
    uri: str = ""


_decode_initialize = msgspec.json.Decoder(InitializeParams).decode
_decode_level = msgspec.json.Decoder(LevelParams).decode
_decode_call = msgspec.json.Decoder(CallParams).decode
_decode_reference = msgspec.json.Decoder(Reference).decode


def initialize(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Answer the handshake: version, capabilities and instructions."""
    params = _decode_initialize(inbound.params)
    session = inbound.session
    session.version = versions.negotiate_legacy(params.protocol_version or "")
    if params.capabilities is not UNSET and message_meta.is_object(params.capabilities):
        session.capabilities = bytes(params.capabilities)

    def answer() -> None:
        session.initialized = True
        listing = gateway.view_of(session.principal).tool_list
        result = {
            "protocolVersion": session.version,
            "capabilities": listing.capabilities(stateless=False),
            "serverInfo": IDENTITY,
            "instructions": listing.instructions(),
        }
        inbound.answer(jsonrpc.encode(result))
        gateway.notify_first_response()

    when_tools_known(gateway, inbound, "tools/list", answer, soon=True)


def discover(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Answer `server/discover`, the stateless counterpart of `initialize`."""

    def answer() -> None:
        listing = gateway.view_of(inbound.session.principal).tool_list
        result = {
            "supportedVersions": list(versions.STATELESS_VERSIONS),
            "capabilities": listing.capabilities(stateless=True),
            "instructions": listing.instructions(),
            "_meta": {message_meta.SERVER: IDENTITY},
        }
        inbound.answer(jsonrpc.encode(result))
        gateway.notify_first_response()

    when_tools_known(gateway, inbound, "tools/list", answer, soon=True)


def ping(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Answer with an empty result."""
    inbound.answer(b"{}")


def set_level(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Set the host's log level."""
    level = _decode_level(inbound.params).level
    if level not in LEVELS:
        inbound.refuse(INVALID_PARAMS, f"Unknown log level '{level}'; use one of {', '.join(LEVELS)}.")
        return
    inbound.session.log_level = level
    gateway.propagate_log_level()
    inbound.answer(b"{}")


def list_tools(gateway: Gateway, inbound: IncomingRequest) -> None:
    """List one tool per suite, and the tools of directly exposed children."""

    def answer() -> None:
        listing = gateway.view_of(inbound.session.principal).tool_list
        inbound.answer(listing.tools(stateless=inbound.is_stateless))
        gateway.notify_first_response()

    when_tools_known(gateway, inbound, "tools/list", answer)


def list_items(gateway: Gateway, inbound: IncomingRequest) -> None:
    """List prompts, resources or templates of all children."""
    method = inbound.method

    def answer() -> None:
        view = gateway.view_of(inbound.session.principal)
        match = prompts_resources.build_list(
            view.suites.values(), prompts_resources.KINDS[method], view.tool_list.result_members(method)
        )
        inbound.answer(match)

    when_tools_known(gateway, inbound, method, answer)


def call_tool(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Call a tool: a suite tool in a form the fast path does not take, a direct tool, or an unknown one."""
    params = _decode_call(inbound.params)
    view = gateway.view_of(inbound.session.principal)
    suite = view.tools.get(params.name)
    if suite is None and params.name in view.absent:
        problem = view.absent[params.name]
        gateway.record_refusal(inbound.session, problem.child or "", "", problem)
        inbound.answer(tool_result(problem))
        return
    if suite is None:
        then = partial(_call_direct, gateway, inbound, params.name)
        when_tools_known(gateway, inbound, "tools/list", then)
        return
    arguments = suite_arguments.parse(params.arguments, suite.source)
    if isinstance(arguments, Failure):
        inbound.answer(tool_result(arguments))
        return
    settled = PlainParams(params.name, arguments, inbound.meta, params.input_responses, params.request_state)
    suite.begin(inbound.session, inbound.channel, inbound.id, settled)


def _call_direct(gateway: Gateway, inbound: IncomingRequest, name: str) -> None:
    view = gateway.view_of(inbound.session.principal)
    own = view.tool_list.direct()
    match = own.get(name)
    alone = view.tool_list.sole_child()
    if (
        match is None
        and alone is not None
        and alone.access.permits(name)
        and not alone.child.inventory.governed
    ):
        match = ResolvedName(alone, name)  # let the child itself report an unknown tool
    if match is None and (blocked := view.tool_list.blocked_reason(name)) is not None:
        gateway.record_refusal(inbound.session, blocked.child or "", name, blocked)
        inbound.answer(tool_result(blocked))
        return
    if match is None:
        near = nearest(name, [*view.tools, *own])
        suggestion = f" Did you mean {', '.join(near)}?" if near else ""
        problem = failure("unknown_tool", f"Unknown tool '{name}'.{suggestion}", nearest=near)
        gateway.record_refusal(inbound.session, "", name, problem)
        inbound.fail(problem)
        return
    _forward(inbound, match, "tools/call")


def get_prompt(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Forward to the child that has the prompt."""
    name = inbound.text("name")
    match = prompts_resources.find_prompt(gateway.view_of(inbound.session.principal).suites.values(), name)
    if match is None:
        inbound.refuse(INVALID_PARAMS, f"Unknown prompt '{name}'.")
    else:
        _forward(inbound, match, "prompts/get")


def read_resource(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Forward to the child that has the resource."""
    match = _resolve_resource(gateway, inbound)
    if match is not None:
        rename = partial(prompts_resources.rename_contents, match.suite, inbound.text("uri"), match.name)
        _forward(inbound, match, "resources/read", rename)


def subscribe(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Subscribe to changes of a resource."""
    match = _resolve_resource(gateway, inbound)
    if match is not None:
        SubscribeRequest(inbound, match).begin()


def _resolve_resource(gateway: Gateway, inbound: IncomingRequest) -> ResolvedName | None:
    """Return the resource a request names; if there is none, answer with an error and return None."""
    uri = inbound.text("uri")
    match = prompts_resources.find_resource(gateway.view_of(inbound.session.principal).suites.values(), uri)
    if match is None:
        code = INVALID_PARAMS if inbound.is_stateless else message_meta.RESOURCE_NOT_FOUND
        inbound.refuse(code, f"Unknown resource '{uri}'.", Raw(jsonrpc.encode({"uri": uri})))
    return match


def complete(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Complete an argument of a prompt or a resource template."""
    reference = _decode_reference(inbound.members.get("ref", NO_PARAMS))
    all_suites = gateway.view_of(inbound.session.principal).suites.values()
    if reference.type == PROMPT_REF:
        match = prompts_resources.find_prompt(all_suites, reference.name)
        name = "name"
    else:
        match = prompts_resources.find_resource(all_suites, reference.uri)
        name = "uri"
    if match is None:
        inbound.refuse(INVALID_PARAMS, f"Unknown reference '{reference.name or reference.uri}'.")
        return
    members = decode_members(inbound.members["ref"])
    reference_members = {**members, name: Raw(jsonrpc.encode(match.name))}
    inbound.members["ref"] = Raw(jsonrpc.encode(reference_members))
    _forward(inbound, match, "completion/complete")


def forward_unknown(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Forward an unknown method to the one directly exposed child, if there is one.

    A governed child only receives what was locked; its tasks come from locked calls.
    """
    method = inbound.method
    only = gateway.view_of(inbound.session.principal).tool_list.only_direct()
    if only is not None and only.child.inventory.governed and not method.startswith("tasks/"):
        only = None
    if only is None or (method.startswith("tasks/") and inbound.is_stateless is not _is_stateless(only)):
        inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {method}")
    else:
        ForwardedRequest(inbound, only, method, inbound.members).begin()


def _is_stateless(suite: ChildSuite) -> bool:
    """Return True if a child is known to be stateless."""
    knowledge = suite.child.snapshot
    return knowledge is not None and versions.is_stateless(knowledge.protocol)


def _forward(
    inbound: IncomingRequest,
    match: ResolvedName,
    method: str,
    rewrite: Callable[[Raw], bytes] | None = None,
) -> None:
    """Forward a request under the child's own name for the item, or resume one that was suspended."""
    members, item_param = inbound.members, traits_of(method).item_param
    if item_param:
        members = {**members, item_param: Raw(jsonrpc.encode(match.name))}
    if match.suite.observer is not None:
        match.suite.observer.begin_request(inbound, match.name)
    fingerprint = ForwardedRequest(inbound, match.suite, method, members).fingerprint()
    request_state, input = members.get("requestState", UNSET), members.get("inputResponses", UNSET)
    resumed = inbound.session.broker.suspended.resume(inbound, fingerprint, request_state, input)
    if resumed is ResumeResult.FRESH:
        members = {name: value for name, value in members.items() if name not in RETRY_MEMBERS}
    if resumed is not ResumeResult.HANDLED:
        request = ForwardedRequest(inbound, match.suite, method, members, rewrite)
        chain = match.suite.pipeline
        (request if chain is None else chain.forward(request)).begin()


class Method(Struct, frozen=True):
    """A method, and the protocol versions it exists in."""

    serve: Callable[[Gateway, IncomingRequest], None]
    legacy: bool = True
    stateless: bool = True


# What else has to be known about a method (the param that names its item, cache hints, …) is in
# `protocol.method_traits`; the capabilities that announce it are in `gateway.capabilities`.
METHODS: dict[str, Method] = {
    "initialize": Method(initialize, stateless=False),
    "server/discover": Method(discover, legacy=False),
    "ping": Method(ping, stateless=False),
    "logging/setLevel": Method(set_level, stateless=False),
    "tools/list": Method(list_tools),
    "tools/call": Method(call_tool),
    "prompts/list": Method(list_items),
    "prompts/get": Method(get_prompt),
    "resources/list": Method(list_items),
    "resources/templates/list": Method(list_items),
    "resources/read": Method(read_resource),
    "resources/subscribe": Method(subscribe, stateless=False),
    "resources/unsubscribe": Method(unsubscribe, stateless=False),
    "completion/complete": Method(complete),
    "subscriptions/listen": Method(listen, legacy=False),
}
