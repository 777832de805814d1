"""One child as hosts see it: a suite tool, or its own tools shown directly.

Owns which of its subtools exist for a host, and what becomes of a call of its suite tool. The calls themselves are in
`calls`; what else a child offers is in `offers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import decode, encode

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.config.models import Config, settings_of
from switchboard_mcp.config.models import SuiteSettings as SuiteConfig
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.incoming import refuse_call, suite_call
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.gateway.suites.suite_calls import (
    IntrospectCall,
    PlainParams,
    SubtoolCall,
    fingerprint,
)
from switchboard_mcp.gateway.suites.suite_tools import Shape, describe, merged_annotations
from switchboard_mcp.gateway.suspended_requests import ResumeResult
from switchboard_mcp.policy.access import access, denial, patterns
from switchboard_mcp.protocol import message_meta, versions
from switchboard_mcp.suites import sanitize
from switchboard_mcp.suites.introspect import IntrospectSettings
from switchboard_mcp.suites.suite_names import suite_names

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.pipeline import CallPipeline
    from switchboard_mcp.gateway.suites.suite_cost import SuiteCost
    from switchboard_mcp.gateway.telemetry import RequestObserver


TOOLS = "tools/list"


class ChildSuite:
    """See the module. `direct` where hosts see the child's own tools in place of a suite tool; `pins` are those that
    they see beside it.
    """

    def __init__(self, name: str, child: Child, config: Config) -> None:
        settings = config.suites.get(child.name) or SuiteConfig()
        self.built_from = settings_of(child.name, config, "suite")
        self.name = name
        self.source = child.name
        self.child = child
        # What is built in was turned on by name already.
        governed = config.governance.mode == "governed" and child.spec.kind != "builtin"
        self.access = access(settings.expose, governed=governed)
        self.introspection = IntrospectSettings(
            mode=config.introspection.mode,
            summary_max_chars=settings.summary_max_chars or config.introspection.summary_max_chars,
            budget_tokens=config.introspection.budget_tokens,
        )
        self.exposure = settings.exposure
        self.pins = patterns(settings.pin) if settings.pin else None
        self._cost: SuiteCost | None = None
        self.pipeline: CallPipeline | None = (
            None  # what stands between hosts and the child, where anything does
        )
        self.observer: RequestObserver | None = None  # who looks at requests on their way, where anybody does
        self.redact_args = settings.redact_args
        self.built_in = child.spec.kind == "builtin"
        self._always_load = settings.always_load
        self.description = sanitize.clean(
            child.spec.switchboard_description
            or settings.description
            or child.spec.description
            or f"Tools of the MCP server '{child.name}'."
        )

    @property
    def direct(self) -> bool:
        """Whether hosts see the child's own tools in place of a suite tool."""
        return self.exposure == "direct" or (self.exposure == "auto" and self.cost().flat_is_cheaper)

    def cost(self) -> SuiteCost:
        """What it costs in tokens, shown in each way, as far as is known of the child."""
        from switchboard_mcp.gateway.suites.suite_cost import SuiteCost  # Only where somebody wants to know.

        if self._cost is None or not self._cost.is_current(self):
            self._cost = SuiteCost.measure(self)
        return self._cost

    def lists_own_entries(self, method: str) -> bool:
        """Whether a list has entries of the child's own, under their own names."""
        return self.direct or (method == TOOLS and self.pins is not None)

    def direct_tools(self) -> list[Tool]:
        """The tools that are listed as they are."""
        tools = self.permitted(self.child.inventory.known_tools())
        if self.direct:
            return tools
        return [tool for tool in tools if self.pins.match(tool.name)] if self.pins is not None else []

    def should_announce(self, *, tools: bool) -> bool:
        """Whether hosts that have seen a list should hear that the child is known for the first time."""
        if tools:
            return self.pins is not None or (self.exposure == "auto" and self.direct)
        # Of a child that is always shown as it is no host has seen a list before it was known.
        return self.exposure != "direct"

    def refusal(self, subtool: str) -> Failure:
        """What a host is told that asked for a subtool which does not exist for it."""
        return denial(self.source, self.name, subtool)

    def permitted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Those that exist for a host."""
        return [tool for tool in tools if self.access.permits(tool.name)]

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call whose arguments are settled."""
        if self.observer is not None:
            channel = self.observer.begin_call(channel, id, params)
        if params.request_state is not UNSET and self._resume_suspended(session, channel, id, params):
            return
        arguments = params.arguments
        if self.redact_args:
            self.redact_arguments(arguments.args)
        if arguments.action == "introspect":
            IntrospectCall(session, channel, id, self, params).begin()
        elif not self.access.permits(arguments.subtool):
            problem = self.refusal(arguments.subtool)
            if self.pipeline is not None:
                self.pipeline.record_decision(
                    "decision", session, arguments.subtool, problem.code, bytes(arguments.args or b"")
                )
            refuse_call(session, channel, id, params.meta, problem)
        elif self.pipeline is not None:
            self.pipeline.begin(session, channel, id, params)
        else:
            SubtoolCall(session, channel, id, self, params).begin()

    def redact_arguments(self, args: Raw | UnsetType) -> None:
        """Keep what `redactArgs` names of these arguments out of everything that is logged or told of the call."""
        from switchboard_mcp.redaction.arguments import hidden_values  # Only where a suite hides arguments.

        self.child.register_secrets(hidden_values(self.redact_args, args))

    def _resume_suspended(
        self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams
    ) -> bool:
        """Whether this was a modern host that came back for a request which is parked here, and is dealt with."""
        inbound = suite_call(session, channel, id, params.meta)
        call_fingerprint = fingerprint(params.name, params.arguments)
        result = session.broker.suspended.resume(
            inbound, call_fingerprint, params.request_state, params.input_responses
        )
        if result is ResumeResult.FRESH:
            params.request_state = params.input_responses = UNSET
        return result is ResumeResult.HANDLED

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """The suite tool as `tools/list` shows it."""
        tools = self.permitted(self.child.inventory.known_tools())
        names = [sanitize.clean(tool.name) for tool in tools]
        tool = describe(
            self.name, self.description, names, shape, merged_annotations(tools) if tools else None
        )
        if self._always_load:
            tool["_meta"] = {"anthropic/alwaysLoad": True}
        return tool


class ResolvedName(Struct, frozen=True):
    """Something of a child: whose it is, and what the child itself calls it."""

    suite: ChildSuite
    name: str


def direct_descriptor(name: str, resolved: ResolvedName, *, stateless: bool) -> Raw:
    """A child's own tool as it came, but for its era, under the name a host uses."""
    child = resolved.suite.child
    raw = child.inventory.tool(resolved.name).raw
    assert raw is not UNSET
    native = child.snapshot is not None and versions.is_stateless(child.snapshot.protocol) is stateless
    raw = message_meta.translate_tool(raw, stateless=stateless, same_family=native)
    if child.inventory.governed:
        raw = sanitize.clean_tool(raw)
    if name == resolved.name:
        return raw
    return Raw(encode({**decode(raw, type=dict[str, Raw]), "name": name}))


def build(
    children: Iterable[Child], config: Config, previous: Mapping[str, ChildSuite] | None = None
) -> dict[str, ChildSuite]:
    """The children's suites by tool name, sorted; what would be the same as `before` stays, with all it remembers."""
    by_name = {child.name: child for child in children}
    configured = {name: suite.suite_name for name, suite in config.suites.items()}
    names = suite_names([(name, configured.get(name, "")) for name in by_name])
    suites: dict[str, ChildSuite] = {}
    for name, child in sorted(by_name.items(), key=lambda item: names[item[0]]):
        known = previous.get(names[name]) if previous else None
        if (
            known is None
            or known.child is not child
            or known.built_from != settings_of(name, config, "suite")
        ):
            known = ChildSuite(names[name], child, config)
        suites[known.name] = known
    return suites
