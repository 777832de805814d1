"""One child as hosts see it: a suite tool, or its own tools shown directly.

Decides which of its subtools exist for a host, and dispatches calls of its suite tool. The calls are in `suite_calls`;
prompts and resources are in `gateway.prompts_resources`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import decode, encode
from msgspec.structs import replace

from switchboard_mcp.children.catalog import Annotations, Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.config.models import Config, settings_of
from switchboard_mcp.config.models import SuiteSettings as SuiteConfig
from switchboard_mcp.errors import INVALID_PARAMS, Failure
from switchboard_mcp.gateway.client_requests.client_request import ResumeResult
from switchboard_mcp.gateway.incoming import refuse_call, suite_call
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.gateway.suites.suite_calls import (
    IntrospectCall,
    SubtoolCall,
    fingerprint,
)
from switchboard_mcp.gateway.suites.suite_tools import PlainParams, Shape, describe, merged_annotations
from switchboard_mcp.gateway.suites.twins import Twins, corrected
from switchboard_mcp.policy.access import access, denial, patterns
from switchboard_mcp.protocol import client_requests, message_meta, versions
from switchboard_mcp.protocol.apps import NO_UI, ToolUi
from switchboard_mcp.protocol.kept_schemes import host_uri, keeps_scheme
from switchboard_mcp.suites import sanitize
from switchboard_mcp.suites.introspect import IntrospectSettings
from switchboard_mcp.suites.suite_names import suite_names, twin_names
from switchboard_mcp.suites.summary import summarise
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.pipeline import CallPipeline
    from switchboard_mcp.gateway.results.shaping import ResultShaper
    from switchboard_mcp.gateway.suites.suite_cost import SuiteCost
    from switchboard_mcp.gateway.telemetry import RequestObserver
    from switchboard_mcp.suites.results.counts import ResultCounts


TOOLS, RESOURCES = "tools/list", "resources/list"


# A server's own words in the list: about one sentence.
OWN_DESCRIPTION_CHARS = 200
# Hosts show a title in menus and questions.
TITLE_CHARS = 60
INVALID_INPUT = "tools/call: `inputResponses` must be an object, and each of its members too."


class ChildSuite:
    """Presents one child as a suite tool, or as its own tools if `direct`. `pins` are tools listed beside the suite."""

    def __init__(self, name: str, child: Child, config: Config) -> None:
        settings = config.suites.get(child.name) or SuiteConfig()
        self.built_from = settings_of(child.name, config, "suite")
        self.name = name
        self.source = child.name
        self.child = child
        # Built-in children were enabled by name, so governed mode need not allow their subtools one by one.
        governed = config.governance.mode == "governed" and child.spec.kind != "builtin"
        self.access = access(settings.expose, governed=governed)
        self.introspection = IntrospectSettings(
            mode=config.introspection.mode,
            summary_max_chars=settings.summary_max_chars or config.introspection.summary_max_chars,
            budget_tokens=config.introspection.budget_tokens,
        )
        self.exposure = settings.exposure or ("suite" if child.spec.kind == "builtin" else config.exposure)
        self.pins = patterns(settings.pin) if settings.pin else None
        self._cost: SuiteCost | None = None
        self.pipeline: CallPipeline | None = None  # None if nothing of it is configured
        self.observer: RequestObserver | None = None  # None without telemetry
        self.redact_args = settings.redact_args
        self.results = results = settings.results or config.results
        self.passed_up_to = results.passed_up_to
        self.shaped_above = results.shaped_above
        self.compacts = results.compact != "off"
        self._shaper: ResultShaper | None = None
        self.split = settings.split
        self.twins: Twins | None = None  # None unless the suite may be split
        self._hints = [(patterns([pattern]), hints) for pattern, hints in settings.hints.items()]
        self.built_in = child.spec.kind == "builtin"
        self.always_load = settings.always_load
        self.shows_icons = settings.icons
        self.shows_apps = settings.apps == "auto"
        configured = child.spec.switchboard_description or settings.description or child.spec.description
        self._generated = not configured
        self.description = sanitize.clean(configured or f"Tools of the MCP server '{child.name}'.")

    @property
    def direct(self) -> bool:
        """True if hosts see the child's own tools in place of a suite tool."""
        return self.exposure == "direct" or (self.exposure == "auto" and self.cost().flat_is_cheaper)

    def cost(self) -> SuiteCost:
        """Return the cost in tokens of each exposure, as far as the child is known."""
        from switchboard_mcp.gateway.suites.suite_cost import (
            SuiteCost,  # loads the tokenizer, so only on demand
        )

        if self._cost is None or not self._cost.is_current(self):
            self._cost = SuiteCost.measure(self)
        return self._cost

    @property
    def has_failed(self) -> bool:
        """True if it is exposed directly, and its child could not be started, so that there is nothing to expose."""
        return (
            self.exposure == "direct" and self.child.snapshot is None and self.child.last_failure is not None
        )

    def lists_own_entries(self, method: str) -> bool:
        """Return whether the list of this method has entries of the child under their own names."""
        return self.direct or (method == TOOLS and self.pins is not None)

    def direct_tools(self) -> list[Tool]:
        """Return the tools that are listed under their own names, to hosts that nothing is known about."""
        return self.own_tools() if self.direct else self.pinned_tools()

    def own_tools(self) -> list[Tool]:
        """Return all tools that exist for a model."""
        return self.permitted(self.child.inventory.known_tools())

    def pinned_tools(self) -> list[Tool]:
        """Return the tools that are listed beside the suite."""
        pins = self.pins
        return [tool for tool in self.own_tools() if pins.match(tool.name)] if pins is not None else []

    @property
    def callable_name(self) -> str:
        """The suite tool that carries all that can be called here: the suite, or the twin that a profile shows."""
        return self.name if self.twins is None else self.twins.only or self.name

    def listed_names(self) -> list[str]:
        """Return the suite tools that are listed unless the child is direct: the suite itself, or its twins."""
        if self.twins is None:
            return [self.name]
        return self.twins.shown(self) or ([] if self.twins.only else [self.name])

    def lists(self, name: str) -> bool:
        """Return whether the suite tool of this name is listed. Others can be called: hosts may have seen them."""
        return not self.direct and (self.twins is None or name in self.listed_names())

    def suite_for(self, subtool: str) -> str:
        """Return the listed suite tool that carries a subtool."""
        names = self.listed_names()
        if self.twins is None or names == [self.name]:
            return self.name
        matches = (tool for tool in self.child.inventory.known_tools() if tool.name == subtool)
        tool = next(matches, None)
        return self.twins.name_for(self, tool) if tool is not None else self.twins.write

    def annotations_of(self, tool: Tool) -> Annotations:
        """Return the annotations of a tool as the child declares them and the config corrects them."""
        return corrected(tool, self._hints)

    def is_read_only(self, tool: Tool) -> bool:
        """Return whether a tool changes nothing, as far as is declared."""
        return self.annotations_of(tool).read_only_hint is True

    def should_announce(self, *, tools: bool) -> bool:
        """Return whether to send list_changed when the child becomes known for the first time."""
        if tools and self.twins is not None:
            shown = self.twins.shown(self)
            if shown != self.twins.first_shown():
                return True
        if tools and self.exposure == "direct":
            return self.child.last_failure is not None  # hosts have seen the suite that explains it
        if tools:
            return self.pins is not None or (self.exposure == "auto" and self.direct) or bool(self.ui_tools())
        # Lists wait for a child that is always direct, so no host has seen one without it.
        return self.exposure != "direct"

    def refusal(self, subtool: str) -> Failure:
        """Return the failure for a subtool that does not exist for this host."""
        return denial(self.source, self.name, subtool, self.access)

    def permitted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools that exist for a model: those that policy permits and that are not for pages alone."""
        declared = self.child.inventory.ui_tools()
        return [
            tool
            for tool in tools
            if self.access.permits(tool.name) and declared.get(tool.name, NO_UI).for_model
        ]

    def ui_tools(self) -> dict[str, ToolUi]:
        """Return the permitted tools that say something about a user interface; empty if pages are not shown.

        A page that policy does not permit is left out: its tool is one without a page.
        """
        if not self.shows_apps:
            return {}
        declared = self.child.inventory.ui_tools()
        return {
            name: ui if not ui.uri or self.access.permits_uri(ui.uri) else replace(ui, uri="")
            for name, ui in declared.items()
            if self.access.permits(name)
        }

    def page_of(self, subtool: str) -> str:
        """Return the URI of a subtool's page for hosts, or an empty string. Cheap for a child without pages."""
        if subtool not in self.child.inventory.ui_tools():
            return ""
        uri = self.ui_tools().get(subtool, NO_UI).uri
        return host_uri(self.child.name, uri) if uri else ""

    def describe_skills(self) -> list[str]:
        """Return a line for each skill, for hosts that do not know skills: they can read it as a resource."""
        shown = [skill for skill in self.child.inventory.skills() if self.access.permits_uri(skill.uri)]
        if not shown:
            return []
        named = [
            f"- {skill.frontmatter.name}: {summarise(skill.frontmatter.description, OWN_DESCRIPTION_CHARS)} "
            f"({skill.uri if self.direct else host_uri(self.child.name, skill.uri)})"
            for skill in shown
            if keeps_scheme(skill.uri)
        ]
        return ["Skills, to be read as resources:", *map(sanitize.for_model, named)]

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call whose arguments are complete."""
        if _has_invalid_input(params):
            session.refuse(channel, id, INVALID_PARAMS, INVALID_INPUT)
            return
        if self.observer is not None:
            channel = self.observer.begin_call(channel, id, params)
        if params.request_state is not UNSET and self._resume_suspended(session, channel, id, params):
            return
        if self.redact_args:
            proceed = partial(self._begin_redacted, session, channel, id, params)
            self.redact_arguments(params.arguments.args, proceed)
        else:
            self._begin_redacted(session, channel, id, params)

    def _begin_redacted(
        self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams
    ) -> None:
        """Serve a call whose secret arguments are registered."""
        arguments = params.arguments
        if arguments.action == "introspect":
            IntrospectCall(session, channel, id, self, params).begin()
        elif arguments.action == "result":
            self.shaper(session).read(session, channel, id, params)
        elif (
            arguments.select and (problem := self.shaper(session).check_select(arguments.select)) is not None
        ):
            refuse_call(session, channel, id, params.meta, problem)
        elif not self.access.permits(arguments.subtool):
            problem = self.refusal(arguments.subtool)
            if self.pipeline is not None:
                self.pipeline.record_decision(
                    "decision", session, arguments.subtool, problem.code, bytes(arguments.args or b"")
                )
            refuse_call(session, channel, id, params.meta, problem)
        elif self.twins is not None and (problem := self._refused_by_twin(params)) is not None:
            refuse_call(session, channel, id, params.meta, problem)
        elif self.pipeline is not None:
            self.pipeline.begin(session, channel, id, params)
        else:
            SubtoolCall(session, channel, id, self, params).begin()

    def _refused_by_twin(self, params: PlainParams) -> Failure | None:
        """Return the failure for a write in the read twin, as far as is known before the child runs."""
        assert self.twins is not None
        subtool = params.arguments.subtool
        if params.name != self.twins.read and not self.twins.reads_only:
            return None
        known_tool = next((tool for tool in self.child.inventory.known_tools() if tool.name == subtool), None)
        return self.twins.refusal(params.name, self, known_tool) if known_tool is not None else None

    def shaper(self, session: Session) -> ResultShaper:
        """Return what shapes the results of this suite; loaded with the first result that needs it."""
        if self._shaper is None:
            from switchboard_mcp.gateway.results.shaping import build_shaper

            self._shaper = build_shaper(self.results, self.name, self.child, session.broker)
        return self._shaper

    def result_counts(self) -> ResultCounts | None:
        """Return what was done with results of this suite; None if there was nothing to do."""
        return self._shaper.keeper.counts if self._shaper is not None else None

    def redact_arguments(self, args: Raw | UnsetType, proceed: Callable[[], None]) -> None:
        """Redact the values that `redactArgs` names from everything that is logged or reported about the call.

        Calls `proceed` when that is done: at once, or after large arguments were searched outside the event loop.
        """
        from switchboard_mcp.redaction.arguments import hidden_values  # only if the suite redacts arguments

        def register(values: list[str] | Exception) -> None:
            self.child.register_secrets(values if isinstance(values, list) else [])
            proceed()

        if args is UNSET or len(memoryview(args)) <= work_thread.LOOP_BYTES:
            register(hidden_values(self.redact_args, args))
        else:
            work_thread.submit(work_thread.OWN, partial(hidden_values, self.redact_args, args), register)

    def _resume_suspended(
        self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams
    ) -> bool:
        """Resume a suspended request that the host retries with its input; return whether that settles the call."""
        inbound = suite_call(session, channel, id, params.meta)
        call_fingerprint = partial(fingerprint, params.name, params.arguments)
        result = session.broker.suspended.resume(
            inbound, call_fingerprint, params.request_state, params.input_responses
        )
        if result is ResumeResult.FRESH:
            params.request_state = params.input_responses = UNSET
        return result is ResumeResult.HANDLED

    def _own_description(self) -> str:
        """Return what the server says about itself in one sentence, or an empty string.

        Its description first, then its instructions, then its title. Not of a governed child: its list has only texts
        of the config, and names that are locked.
        """
        inventory = self.child.inventory
        snapshot = inventory.snapshot
        if snapshot is None or inventory.governed or self.built_in:
            return ""
        about = snapshot.about if not snapshot.about.startswith("Tools of ") else ""
        text = about or inventory.instructions or snapshot.about
        return summarise(sanitize.for_model(text), OWN_DESCRIPTION_CHARS)

    def descriptors(self, shape: Shape) -> list[dict[str, object]]:
        """Return the suite tools that are listed, unless the child is direct."""
        return [self.describe_as(name, shape) for name in self.listed_names()]

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """Return the suite tool as `tools/list` shows it."""
        return self.describe_as(self.name, shape)

    def describe_as(self, name: str, shape: Shape) -> dict[str, object]:
        """Return the suite, or one of its twins, as `tools/list` shows it."""
        tools = self.permitted(self.child.inventory.known_tools())
        annotations: dict[str, bool] | None = None
        if self.twins is not None:
            tools = self.twins.of(name, self, tools)
            if name != self.name:
                annotations = {
                    "readOnlyHint": name == self.twins.read,
                    "destructiveHint": name != self.twins.read,
                }
        if tools:
            annotations = merged_annotations(map(self.annotations_of, tools))
        names = [sanitize.clean(tool.name) for tool in tools]
        own = self._own_description() if self._generated else ""
        tool = describe(
            name,
            own or self.description,
            names,
            shape,
            annotations,
            generated=self._generated and not own,
        )
        if self.always_load:
            tool["_meta"] = {"anthropic/alwaysLoad": True}
        snapshot = self.child.inventory.snapshot
        if snapshot is not None and not self.child.inventory.governed and shape.annotations:
            if title := sanitize.clean(snapshot.title).strip():
                tool["title"] = summarise(title, TITLE_CHARS)
            if self.shows_icons and snapshot.icons is not UNSET:
                tool["icons"] = snapshot.icons
        return tool


class ResolvedName(Struct, frozen=True):
    """A tool, prompt or resource of a child under the name that the child uses.

    `listed_in` is the list that must have it; empty for what is in no list. `by_page` for a tool under a name that
    only pages use.
    """

    suite: ChildSuite
    name: str
    listed_in: str = TOOLS
    by_page: bool = False

    @property
    def is_permitted(self) -> bool:
        """True if the allow and deny lists of the view permit it. Only what is listed can be denied."""
        access = self.suite.access
        if self.listed_in == RESOURCES:
            return access.permits_uri(self.name)
        return not self.listed_in or access.permits(self.name)


def direct_descriptor(name: str, resolved: ResolvedName, *, stateless: bool) -> Raw:
    """Return the descriptor of a child's own tool under the name that hosts use, for their protocol version."""
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


def build_suites(
    children: Iterable[Child], config: Config, previous: Mapping[str, ChildSuite] | None = None
) -> dict[str, ChildSuite]:
    """Return the suites by tool name, sorted. Suites of `previous` with an unchanged config are reused."""
    by_name = {child.name: child for child in children}
    configured = {name: suite.suite_name for name, suite in config.suites.items()}
    names = suite_names([(name, configured.get(name, "")) for name in by_name])
    suites: dict[str, ChildSuite] = {}
    # The user's own children come first: whatever has the same name in a project gets another one.
    by_scope = sorted(by_name.items(), key=lambda item: (item[1].spec.scope != "user", names[item[0]]))
    for name, child in by_scope:
        earlier = previous.get(names[name]) if previous else None
        if (
            earlier is None
            or earlier.child is not child
            or earlier.built_from != settings_of(name, config, "suite")
        ):
            earlier = ChildSuite(names[name], child, config)
        suites[earlier.name] = earlier
    if any(suite.split for suite in suites.values()):
        names_of_twins = twin_names(list(suites))
        for suite in suites.values():
            if suite.split and suite.exposure != "direct":
                suite.twins = Twins(*names_of_twins[suite.name], auto=suite.split == "auto")
    return suites


def _has_invalid_input(params: PlainParams) -> bool:
    """Return True if a stateless host has written its input wrongly.

    The error of the child would be a result for the model, which cannot correct it.
    """
    if params.input_responses is UNSET or params.meta is UNSET or message_meta.VERSION not in params.meta:
        return False
    return not client_requests.are_input_responses(params.input_responses)
