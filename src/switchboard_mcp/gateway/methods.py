"""The methods a host may call: one function each, and the table of the protocol versions each exists in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND, Failure, tool_result
from switchboard_mcp.gateway import prompts_resources
from switchboard_mcp.gateway.call_path import send
from switchboard_mcp.gateway.forward import AS_IT_IS, PROMPTS, RESOURCES, Relay, unknown_item, unknown_tool
from switchboard_mcp.gateway.incoming import MAX_METHOD_CHARS, NO_PARAMS, IncomingRequest
from switchboard_mcp.gateway.subscriptions import SubscribeRelay, listen, unsubscribe
from switchboard_mcp.gateway.suites.app_pages import find_page, resolve_page_call
from switchboard_mcp.gateway.suites.child_suite import ResolvedName
from switchboard_mcp.gateway.suites.suite_tools import PlainParams
from switchboard_mcp.gateway.suites.tool_readiness import when_tools_known
from switchboard_mcp.gateway.tasks.task_methods import PAGED, TOOL_CALL, holds_cursor, list_tasks, use_task
from switchboard_mcp.hosts import traits
from switchboard_mcp.hosts.traits import HostTraits
from switchboard_mcp.protocol import jsonrpc, message_meta, versions
from switchboard_mcp.protocol.apps import declares_apps
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.kept_schemes import keeps_scheme
from switchboard_mcp.protocol.message_meta import LEVELS
from switchboard_mcp.protocol.method_traits import PROMPT_REF, fold_name, traits_of
from switchboard_mcp.suites import suite_arguments

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.suites.tool_list import ToolListCache

NO_CURSOR = Raw(b"null")
UNKNOWN_CURSOR = (
    "Unknown cursor: the tool list has changed since it was issued. Call tools/list without a cursor."
)
IDENTITY = {"name": "switchboard", "version": __version__}
EXTENSION_RULE = (
    ". Methods of extensions reach a child only if it alone declares one, for hosts of its protocol version, and no "
    "allow or deny list and no governed mode restricts it."
)


class InitializeParams(Struct, rename="camel"):
    """The params of `initialize` that are used here."""

    protocol_version: str | None = ""
    capabilities: Raw | UnsetType = UNSET
    client_info: Raw | UnsetType = UNSET


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
_decode_cursor = msgspec.json.Decoder(str | None).decode
_decode_reference = msgspec.json.Decoder(Reference).decode


def initialize(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Answer the handshake: version, capabilities and instructions."""
    params = _decode_initialize(inbound.params)
    session = inbound.session
    session.version = versions.negotiate_legacy(params.protocol_version or "")
    if params.capabilities is not UNSET and message_meta.is_object(params.capabilities):
        session.capabilities = bytes(params.capabilities)
    session.client = message_meta.client_name(params.client_info)
    session.client_version = message_meta.client_version(params.client_info)

    def answer() -> None:
        session.initialized = True
        listing = gateway.view_of(session.viewer).tool_list
        result = {
            "protocolVersion": session.version,
            "capabilities": listing.capabilities(stateless=False),
            "serverInfo": IDENTITY,
            **_instructions(listing, inbound),
        }
        inbound.answer(jsonrpc.encode(result))
        gateway.notify_first_response()

    when_tools_known(gateway, inbound, "tools/list", answer, soon=True)


def _instructions(listing: ToolListCache, inbound: IncomingRequest) -> dict[str, str]:
    """Return the member with the instructions, or nothing if there are none."""
    instructions = listing.instructions(_host_of(inbound))
    return {"instructions": instructions} if instructions else {}


def _host_of(inbound: IncomingRequest) -> HostTraits:
    return traits.traits_of(inbound.client, inbound.client_version)


def discover(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Answer `server/discover`, the stateless counterpart of `initialize`."""

    inbound.session.client = inbound.client
    inbound.session.client_version = inbound.client_version

    def answer() -> None:
        listing = gateway.view_of(inbound.session.viewer).tool_list
        result = {
            "supportedVersions": list(versions.STATELESS_VERSIONS),
            "capabilities": listing.capabilities(stateless=True),
            **_instructions(listing, inbound),
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
    gateway.set_log_level(inbound)
    inbound.answer(b"{}")


def list_tools(gateway: Gateway, inbound: IncomingRequest) -> None:
    """List one tool per suite, and the tools of directly exposed children."""

    def answer() -> None:
        listing = gateway.view_of(inbound.session.viewer).tool_list
        apps, host = declares_apps(inbound.capabilities), _host_of(inbound)
        page = listing.page(cursor, stateless=inbound.is_stateless, apps=apps, host=host)
        if page is None:
            inbound.refuse(INVALID_PARAMS, UNKNOWN_CURSOR)
        else:
            inbound.session.listed_bytes += len(page)
            inbound.answer(page)
        gateway.notify_first_response()

    cursor = _decode_cursor(inbound.members.get("cursor", NO_CURSOR)) or ""
    when_tools_known(gateway, inbound, "tools/list", answer)


def list_items(gateway: Gateway, inbound: IncomingRequest) -> None:
    """List prompts, resources or templates of all children."""
    method = inbound.method

    def answer() -> None:
        session = inbound.session
        view = gateway.view_of(session.viewer)
        store = session.broker.results if method == prompts_resources.RESOURCES else None
        kept = store.resource_entries(session) if store is not None else []
        kind, members = prompts_resources.KINDS[method], view.tool_list.result_members(method)
        inbound.answer(prompts_resources.build_list(view.suites.values(), kind, members, kept))

    when_tools_known(gateway, inbound, method, answer)


def call_tool(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Call a tool: a suite tool in a form the fast path does not take, a direct tool, or an unknown one."""
    params = _decode_call(inbound.params)
    view = gateway.view_of(inbound.session.viewer)
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
    view = gateway.view_of(inbound.session.viewer)
    shows_apps, host = declares_apps(inbound.capabilities), _host_of(inbound)
    own = view.tool_list.direct(apps=shows_apps, host=host)
    match = own.get(name)
    if match is None and shows_apps and (owners := view.tool_list.app_tools(host=host).get(name)):
        called = resolve_page_call(owners, inbound.session)
        if isinstance(called, list):
            gateway.record_unknown(inbound, "item_unknown")
            inbound.refuse(
                INVALID_PARAMS,
                f"Tool '{name}' exists in {' and '.join(called)}; a page has read neither or both.",
            )
            return
        match = called
    if match is None and (blocked := view.tool_list.blocked_reason(name)) is not None:
        gateway.record_refusal(inbound.session, blocked.child or "", name, blocked)
        inbound.answer(tool_result(blocked))
        return
    only = view.tool_list.only_direct()
    if match is None and only is not None:
        match = ResolvedName(only, name)  # its list may be stale: fetched again before the call is refused
    if match is None:
        problem = unknown_tool(name, [*view.tools, *own])
        gateway.record_refusal(inbound.session, "", name, problem)
        inbound.fail(problem)
        return
    _send_item(inbound, match, TOOL_CALL)


def get_prompt(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Forward to the child that has the prompt."""
    name = inbound.text("name")
    match = prompts_resources.find_prompt(gateway.view_of(inbound.session.viewer).suites.values(), name)
    if match is None:
        _refuse_unknown(gateway, inbound, PROMPTS)
    else:
        _send_item(inbound, match)


def read_resource(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Forward to the child that has the resource, unless it is a result that was kept for this host."""
    kept = inbound.session.broker.results
    if kept is not None and kept.answers_read(inbound, inbound.text("uri")):
        return
    match = _resolve_resource(gateway, inbound)
    if match is not None:
        _send_item(inbound, match, prompts_resources.ReadRelay())


def list_skills(gateway: Gateway, inbound: IncomingRequest) -> None:
    """List the skills of all children."""
    suites = gateway.view_of(inbound.session.viewer).suites.values()
    if not any(suite.child.inventory.has_skills for suite in suites):
        forward_unknown(gateway, inbound)
    else:
        inbound.answer(prompts_resources.build_skill_list(suites))


def read_skill(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Forward to the child that has the skill or the folder."""
    suites = gateway.view_of(inbound.session.viewer).suites.values()
    if not any(suite.child.inventory.has_skills for suite in suites):
        forward_unknown(gateway, inbound)
    elif (match := _resolve_resource(gateway, inbound)) is not None:
        _send_item(inbound, match, prompts_resources.SkillRelay())


def subscribe(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Subscribe to changes of a resource."""
    match = _resolve_resource(gateway, inbound)
    if match is not None:
        _send_item(inbound, match, SubscribeRelay())


def _resolve_resource(gateway: Gateway, inbound: IncomingRequest) -> ResolvedName | None:
    """Return the resource a request names; if there is none, answer with an error and return None."""
    uri = inbound.text("uri")
    suites = gateway.view_of(inbound.session.viewer).suites.values()
    find = find_page if keeps_scheme(uri) else prompts_resources.find_resource
    match = find(suites, uri) or prompts_resources.find_link(suites, uri, inbound.session)
    if match is None:
        _refuse_unknown(gateway, inbound, RESOURCES)
    return match


def _refuse_unknown(gateway: Gateway, inbound: IncomingRequest, listed_in: str) -> None:
    """Answer that no child offers a prompt or a resource, and record it."""
    gateway.record_unknown(inbound, "item_unknown")
    inbound.channel.answer(jsonrpc.error_body(inbound.id, unknown_item(inbound, listed_in)))


def complete(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Complete an argument of a prompt or a resource template."""
    reference = _decode_reference(inbound.members.get("ref", NO_PARAMS))
    all_suites = gateway.view_of(inbound.session.viewer).suites.values()
    if reference.type == PROMPT_REF:
        match = prompts_resources.find_prompt(all_suites, reference.name)
        name = "name"
    else:
        match = prompts_resources.find_resource(all_suites, reference.uri)
        name = "uri"
    if match is None:
        gateway.record_unknown(inbound, "item_unknown")
        inbound.refuse(INVALID_PARAMS, f"Unknown reference '{reference.name or reference.uri}'.")
        return
    own = {**decode_members(inbound.members["ref"]), name: Raw(jsonrpc.encode(match.name))}
    relay = prompts_resources.CompletionRelay()
    send(inbound, match, {**inbound.members, "ref": Raw(jsonrpc.encode(own))}, relay)


def forward_unknown(gateway: Gateway, inbound: IncomingRequest) -> None:
    """Forward an unknown method to the child that may have it (`ToolListCache.extension_child`)."""
    listing = gateway.view_of(inbound.session.viewer).tool_list
    only = listing.extension_child(stateless=inbound.is_stateless)
    refused = len(inbound.method) > MAX_METHOD_CHARS or _is_known(inbound.method)
    if only is None or refused:
        gateway.record_unknown(inbound, "method_unknown")
        rule = EXTENSION_RULE if listing.has_extensions and not refused else ""
        inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {inbound.method[:MAX_METHOD_CHARS]}{rule}")
    elif holds_cursor(inbound, only):
        send(inbound, ResolvedName(only, "", ""), inbound.members, PAGED)


def _is_known(method: str) -> bool:
    """Return True if a child may take an unknown method for one that is served here, or for one about a task."""
    folded = fold_name(method)
    return folded.startswith("tasks/") or folded in {fold_name(name) for name in METHODS}


def _send_item(inbound: IncomingRequest, match: ResolvedName, relay: Relay = AS_IT_IS) -> None:
    """Send a request that names an item, under the child's own name for it."""
    name = Raw(jsonrpc.encode(match.name))
    send(inbound, match, {**inbound.members, traits_of(inbound.method).item_param: name}, relay)


class Method(Struct, frozen=True):
    """A method, and the protocol versions it exists in. One that `reaches_child` takes the path of `call_path.send`."""

    serve: Callable[[Gateway, IncomingRequest], None]
    reaches_child: bool
    legacy: bool = True
    stateless: bool = True


# What else has to be known about a method (the param that names its item, cache hints, …) is in
# `protocol.method_traits`; the capabilities that announce it are in `gateway.capabilities`.
METHODS: dict[str, Method] = {
    "initialize": Method(initialize, reaches_child=False, stateless=False),
    "server/discover": Method(discover, reaches_child=False, legacy=False),
    "ping": Method(ping, reaches_child=False, stateless=False),
    "logging/setLevel": Method(set_level, reaches_child=True, stateless=False),
    "tools/list": Method(list_tools, reaches_child=False),
    "tools/call": Method(call_tool, reaches_child=True),
    "prompts/list": Method(list_items, reaches_child=False),
    "prompts/get": Method(get_prompt, reaches_child=True),
    "resources/list": Method(list_items, reaches_child=False),
    "resources/templates/list": Method(list_items, reaches_child=False),
    "resources/read": Method(read_resource, reaches_child=True),
    "resources/directory/read": Method(read_skill, reaches_child=True),
    "skills/list": Method(list_skills, reaches_child=False),
    "skills/get": Method(read_skill, reaches_child=True),
    "resources/subscribe": Method(subscribe, reaches_child=True, stateless=False),
    "resources/unsubscribe": Method(unsubscribe, reaches_child=True, stateless=False),
    "completion/complete": Method(complete, reaches_child=True),
    "tasks/get": Method(use_task, reaches_child=True),
    "tasks/result": Method(use_task, reaches_child=True, stateless=False),
    "tasks/list": Method(list_tasks, reaches_child=True, stateless=False),
    "tasks/update": Method(use_task, reaches_child=True, legacy=False),
    "tasks/cancel": Method(use_task, reaches_child=True),
    "subscriptions/listen": Method(listen, reaches_child=True, legacy=False),
}
