"""Suite calls: `introspect` and `call` of a suite tool.

A result is passed on undecoded, unless child and host use different protocol version families.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.child import MAX_BACKLOG, Child
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.errors import (
    CORRECT_ARGUMENTS,
    INVALID_PARAMS,
    Failure,
    failure,
    is_about_arguments,
    is_network_failure,
    tool_result,
)
from switchboard_mcp.gateway.request import UNKNOWN_STATE, HostRequest
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.gateway.suites.suite_tools import PlainParams
from switchboard_mcp.gateway.tasks.awaited_tasks import TaskPoll, note_task
from switchboard_mcp.policy.access import nothing_allowed, nothing_allowed_remedy
from switchboard_mcp.protocol import apps, client_requests, jsonrpc, result_ids
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.result_ids import CreatedTask
from switchboard_mcp.suites import introspect
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.suites.schema_compaction import compact
from switchboard_mcp.suites.suite_arguments import RESULT_SUBTOOL, SuiteCall, unwrap
from switchboard_mcp.system import work_thread
from switchboard_mcp.transport.rpc import next_id

if TYPE_CHECKING:
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

# Ids of tasks are kept whole, to be sent to the child again.
MAX_TASK_ID = 1_024
WRAPPERS = frozenset({"args", "arguments"})


# The built-in subtool of every suite, as introspection describes it.
RESULT_TOOL = {
    "name": RESULT_SUBTOOL,
    "description": "Read a kept result by its handle, or call a subtool and get a part of its result.",
    "inputSchema": Raw(
        b'{"type":"object","properties":{"handle":{"type":"string"},"subtool":{"type":"string"},'
        b'"args":{"type":"object"},"select":{"type":"string","description":"JMESPath over the JSON of the result"},'
        b'"find":{"type":"string","description":"words of the wanted lines"},"page":{"type":"integer"}}}'
    ),
}


class IntrospectCall(HostRequest):
    """`action: introspect` of a suite tool."""

    __slots__ = ("params",)

    suite: ChildSuite

    def __init__(
        self, session: Session, channel: ReplyChannel, host_id: bytes, suite: ChildSuite, params: PlainParams
    ) -> None:
        self.session = session
        self.channel = channel
        self.host_id = host_id
        self.suite = suite
        self.child = suite.child
        self.params = params
        self.meta = params.meta
        self.id = b""

    @property
    def catalog_is_enough(self) -> bool:
        """True: locked tools can be introspected without starting the child."""
        return True

    def on_ready(self, child: Child) -> None:
        """Answer from the child's tools, which are known now."""
        suite, arguments = self.suite, self.params.arguments
        child.lookups += 1
        if arguments.subtool == RESULT_SUBTOOL:
            self._answer(jsonrpc.encode({"tools": [RESULT_TOOL]}))
            return
        if arguments.subtool and not suite.access.permits(arguments.subtool):
            self.on_failed(suite.refusal(arguments.subtool))
            return
        blocked = child.inventory.tool_blocked_reason(arguments.subtool) if arguments.subtool else None
        if blocked is not None:
            self.on_failed(blocked)
            return
        tools = suite.permitted(child.inventory.known_tools())
        if suite.twins is not None:
            name = self.params.name
            tool = next((tool for tool in tools if tool.name == arguments.subtool), None)
            problem = suite.twins.refusal(name, suite, tool) if tool is not None else None
            if problem is not None:
                self.on_failed(problem)
                return
            tools = suite.twins.of(name, suite, tools) if not arguments.subtool else tools
        request = introspect.IntrospectRequest(
            arguments.subtool, arguments.query, arguments.verbosity, arguments.cursor
        )
        about = child.inventory.instructions
        if child.inventory.has_skills:
            about = "\n".join(filter(None, (about, *suite.describe_skills())))
        learned = child.inventory.learned_results(tools)
        render = partial(_render_tools, child.name, tools, request, suite.introspection, about, learned)
        if suite.access.allows_nothing:
            render = partial(
                render, f"{nothing_allowed(suite.source)} {nothing_allowed_remedy(suite.source)}"
            )
        if sum(tool.size for tool in tools) <= work_thread.LOOP_BYTES:
            self._answer(render())
        else:
            work_thread.submit(self.session, render, self._answer)

    def _answer(self, answer: bytes | Failure | Exception) -> None:
        if not self.is_awaited:  # the host has cancelled meanwhile
            return
        if isinstance(answer, Exception):
            message = f"The tools of child '{self.child.name}' cannot be described."
            self.on_failed(failure("internal", message, child=self.child.name))
        elif isinstance(answer, Failure):
            self.on_failed(answer)
        else:
            self._record("ok")
            self.session.opened_bytes += len(answer)
            self.finish(jsonrpc.encode({"content": [{"type": "text", "text": answer.decode()}]}))

    def on_failed(self, problem: Failure) -> None:
        """Answer the host with a failure, and record it."""
        self._record(problem.code)
        _finish_failed(self, problem)

    def _record(self, outcome: str) -> None:
        if self.suite.pipeline is not None:
            self.suite.pipeline.record_decision(
                "introspect", self.session, self.params.arguments.subtool, outcome, client=self.client
            )


class SubtoolCall(HostRequest):
    """`action: call` of a suite tool."""

    __slots__ = ("params",)

    suite: ChildSuite

    # The same as in `IntrospectCall`: a shared base class would make the inheritance of pipeline calls deeper.
    def __init__(
        self, session: Session, channel: ReplyChannel, host_id: bytes, suite: ChildSuite, params: PlainParams
    ) -> None:
        self.session = session
        self.channel = channel
        self.host_id = host_id
        self.suite = suite
        self.child = suite.child
        self.params = params
        self.meta = params.meta
        self.id = b""

    @property
    def arguments(self) -> SuiteCall:
        """The arguments of the suite tool."""
        return self.params.arguments

    def on_failed(self, problem: Failure) -> None:
        """Answer the host with a failure that names child and subtool."""
        _finish_failed(self, problem)

    @property
    def runs_as_task(self) -> bool:
        """True if the subtool only runs as a task."""
        return self.arguments.subtool in self.child.inventory.task_only_tools

    @property
    def may_become_task(self) -> bool:
        """True unless a part of the result is wanted, or the principal has too many tasks."""
        arguments, broker = self.params.arguments, self.session.broker
        return (
            not arguments.select
            and not arguments.find
            and broker.issued.may_start_task(self.session.principal, broker.loop.time())
        )

    def on_ready(self, child: Child) -> None:
        """Send the call to the child, if it has the subtool. `dispatch` is inlined: this is the hot path."""
        params, inventory = self.params, child.inventory
        arguments = params.arguments
        if params.request_state is not UNSET and not self.may_resume(child, params.request_state):
            # Not a state of ours, or `ChildSuite` would have resumed the request; nor one of the child for this host.
            self.finish_with_error(UNKNOWN_STATE)
            return
        prefix = inventory.call_prefixes.get(arguments.subtool)
        if prefix is None:
            blocked = inventory.tool_blocked_reason(arguments.subtool)
            if blocked is not None:
                self.on_failed(blocked)
                return
            # A child may change its tools without a notification, so list them again before refusing.
            child.refresh_list_for("tools/list", arguments.subtool, RelistThenCall(self))
            return
        if self.suite.twins is not None:
            problem = self.suite.twins.refusal(
                params.name, self.suite, inventory.tools.get(arguments.subtool)
            )
            if problem is not None:
                self.on_failed(problem)
                return
        id = next_id()
        args = bytes(arguments.args)  # type: ignore[arg-type]  # complete, so never UNSET
        # Arguments that begin with `"args"` or `"arguments"` may be wrapped once more; `build` finds out. 24 bytes are
        # enough for a brace, white space and either name.
        if self.meta is UNSET and not inventory.is_stateless and args.find(b'"arg', 0, 24) < 0:
            message = b"".join((prefix, args, b'},"id":', id, b"}"))
        else:
            message = self.build(child, id)
        self.id, self.message, self.timeout_s = id, message, self.call_timeout_s(child)
        session = self.session
        session.sent += 1
        if child.last_session is not session:
            child.note_user(session, remember=session.is_lasting)
        peer = child.peer
        if peer is None or peer.transport.write_buffer_size > MAX_BACKLOG:
            self.on_failed(child.unavailable_reason())
        else:
            peer.send(self)

    def build(self, child: Child, id: bytes) -> bytes:
        """Build the child's own `tools/call`."""
        arguments, params = self.arguments, self.params
        args = bytes(arguments.args)  # type: ignore[arg-type]  # complete, so never UNSET
        if (
            b'"arg' in args[:24]
        ):  # models sometimes wrap arguments once more; a wrapper can only be the first member
            args = unwrap(args, _parameter_names(child, arguments.subtool))
        extra = getattr(self, "extra_params", b"") or (_retry_members(params) if child.is_stateless else b"")
        meta = self.meta_for_child(child, id)
        meta_member = b"" if meta is None else b',"_meta":' + meta
        return b"".join(
            (child.inventory.call_prefixes[arguments.subtool], args, meta_member, extra, b'},"id":', id, b"}")
        )

    def fingerprint(self) -> bytes:
        """Identify the call, so a retry with input can be matched to it."""
        return fingerprint(self.params.name, self.arguments)

    def answered(self, answer: RpcMessage) -> None:
        """Pass the child's result on unchanged; turn its JSON-RPC error into a failure that a model can act on."""
        if answer.error is not UNSET or answer.result is UNSET:
            error = jsonrpc.get_error(answer)
            if error is not None:
                if not (
                    self.relist_and_retry(error) or self.retry_as_task(error) or self.answer_host_error(error)
                ):
                    self.on_failed(self._child_error(error))
                return
        result: Raw = answer.result  # type: ignore[assignment]  # present if there is no error
        if self.child.is_sandboxed:
            result = Raw(self.child.explain_result(result))
        if self.child.inventory.needs_result_check:
            self.record_issued_ids(result)
            if (page := self.suite.page_of(self.arguments.subtool)) and apps.declares_apps(self.capabilities):
                result = apps.link_page(result, page)
            task = result_ids.created_task(bytes(result)) if self.child.is_stateless else None
            if task is not None and task.id:
                self._task_created(task, result)
            else:
                self.handle_result(result)
        else:
            self.finish(result)

    def _task_created(self, task: CreatedTask, result: Raw) -> None:
        """Answer the host with a task under an id of our own, which it alone can use."""
        if not self.is_stateless and self.awaits_task:
            TaskPoll(self, task).begin(result)
            return
        if not self.is_stateless or not client_requests.declares_tasks(self.capabilities):
            name = self.child.name
            message = f"Child '{name}' returned a task, which the host does not support."
            self.on_failed(failure("child_protocol", message, child=name))
            return
        if len(task.id) > MAX_TASK_ID:
            name = self.child.name
            message = f"Child '{name}' returned a task whose id has more than {MAX_TASK_ID} characters."
            self.on_failed(failure("child_protocol", message, child=name))
            return
        issued, now = self.session.broker.issued, self.session.broker.loop.time()
        ours = issued.issue_task(self.session, self.child, task.id, self.arguments.subtool, now, task.ttl_s)
        note_task(self.child, task, now)
        self.finish(result_ids.with_task_id(result, ours))

    def finish(self, result: Raw | bytes) -> None:
        """Answer the host with a result: as it is, unless it is selected from, compacted or too long."""
        arguments = self.params.arguments
        if self.child.result_types is not None and self.suite.pipeline is None:
            self.sample(result)
        if self.meta is UNSET and not arguments.select and not arguments.find:
            # What `HostRequest.finish` does, inlined for small results: the size of the message comes for free, while
            # that of a raw result costs as much as all of this.
            host_id, session = self.host_id, self.session
            in_flight = session.in_flight
            message = jsonrpc.result(host_id, result)
            size = len(message)
            if size <= self.suite.passed_up_to and in_flight.get(host_id) is self:
                del in_flight[host_id]
                session.answered_bytes += size
                self.channel.answer(message)
                return
        if self._may_be_shaped(result):
            session, client = self.session, (self.client, self.client_version)
            finish = partial(HostRequest.finish, self)
            self.suite.shaper(session).deliver(arguments, session, client, bytes(result), finish)
        else:
            HostRequest.finish(self, result)

    def sample(self, result: Raw | bytes) -> None:
        """Let the type of the result be learned, for programs. What a program gets is learned from there."""
        types, subtool = self.child.result_types, self.params.arguments.subtool
        if types is None:
            return
        left = types.skips.get((self.suite.source, subtool), 0)
        if left:  # nearly always: kept short, since every call comes through here
            types.skips[self.suite.source, subtool] = left - 1
            return
        tool = self.child.inventory.tools.get(subtool)
        if self.suite.built_in or tool is None:
            return
        if self.host_id not in self.session.program_calls:
            types.sample(self.child.spec, tool, result)

    def _may_be_shaped(self, result: Raw | bytes) -> bool:
        """Return whether a result may be changed: the call selects from it, or it is large or has two copies."""
        arguments, suite = self.params.arguments, self.suite
        size = len(memoryview(result))
        session = self.session
        return not (session.whole_results or self.host_id in session.program_calls) and (
            bool(arguments.select or arguments.find)
            or size > suite.shaped_above
            or (size > suite.passed_up_to and suite.compacts and b'"structuredContent"' in bytes(result))
        )

    def timeout_failure(self) -> Failure:
        """Return the failure for a call that took too long."""
        child, subtool = self.child.name, self.arguments.subtool
        message = f"Child '{child}' did not answer subtool '{subtool}' within {self.timeout_s:g} s."
        return failure("child_timeout", message, child=child)

    def fail_unknown_subtool(self, child: Child) -> None:
        """Refuse the call: the child has no such subtool, or its lock blocks it."""
        blocked = child.inventory.tool_blocked_reason(self.arguments.subtool)
        if blocked is not None:
            self.on_failed(blocked)
            return
        tools = self.suite.permitted(child.inventory.tools.values())
        if self.suite.twins is not None:
            tools = self.suite.twins.of(self.params.name, self.suite, tools)
        names = [tool.name for tool in tools]
        self.on_failed(
            failure(
                "subtool_unknown",
                f"Child '{child.name}' has no subtool '{self.arguments.subtool}'.",
                child=child.name,
                subtool=self.arguments.subtool,
                nearest=nearest(self.arguments.subtool, names),
                hint=child.inventory.removed_tool_hint(self.arguments.subtool),
            )
        )

    def _child_error(self, raw: Raw) -> Failure:
        child, subtool = self.child, self.arguments.subtool
        error = jsonrpc.parse_error(raw)
        tool = child.inventory.tools.get(subtool)
        schema: Raw | UnsetType = UNSET
        # A large schema would hide the error, and takes long to compact.
        is_network = error.code != INVALID_PARAMS and is_network_failure(error.message)
        invalid = error.code == INVALID_PARAMS or (not is_network and is_about_arguments(error.message))
        if invalid and tool is not None and tool.size <= work_thread.LOOP_BYTES:
            readable = tool.sanitized().input_schema
            schema = _compacted(readable) if readable is not UNSET else UNSET
        return failure(
            "child_network_error" if is_network else "child_error",
            f"Child '{child.name}', subtool '{subtool}': {error.message} (code {error.code})"
            + child.explain_error(error.message),
            child=child.name,
            subtool=subtool,
            hint=CORRECT_ARGUMENTS if invalid else "",
            schema=schema,
            data=error.data,
        )


class RelistThenCall(ReadyWaiter):
    """Repeats a call for an unlisted subtool once the tools have been listed again."""

    __slots__ = ("call",)

    def __init__(self, call: SubtoolCall) -> None:
        self.call = call

    def on_ready(self, child: Child) -> None:
        """Send the call if the subtool is listed now, unless the host has cancelled meanwhile."""
        if self.call.is_awaited:
            if self.call.arguments.subtool in child.inventory.call_prefixes:
                self.call.on_ready(child)
            else:
                self.call.fail_unknown_subtool(child)

    def on_failed(self, problem: Failure) -> None:
        """Fail the call: the child stopped meanwhile."""
        self.call.on_failed(problem)


def _finish_failed(request: IntrospectCall | SubtoolCall, problem: Failure) -> None:
    """Answer the host with a failure that names child and subtool."""
    subtool = request.params.arguments.subtool
    if problem.subtool is UNSET and subtool:
        problem = problem.with_subtool(subtool)
    request.finish(tool_result(request.child.record_failure(problem, request.session.process_owner)))


def fingerprint(name: str, arguments: SuiteCall) -> bytes:
    """Return the identity of a suite call, independent of how its JSON is written."""
    args = jsonrpc.canonicalize(arguments.args) if arguments.args is not UNSET else b""
    return jsonrpc.encode((name, arguments.subtool)) + args


def _retry_members(params: PlainParams) -> bytes:
    """Return the params with which a stateless host retries a call of a stateless child."""
    extra = b""
    if params.input_responses is not UNSET:
        extra = b',"inputResponses":' + bytes(params.input_responses)
    if params.request_state is not UNSET:
        extra += b',"requestState":' + bytes(params.request_state)
    return extra


def _render_tools(
    child: str,
    tools: list[Tool],
    request: introspect.IntrospectRequest,
    settings: introspect.IntrospectSettings,
    instructions: str,
    learned: Mapping[str, str],
    if_none: str = introspect.NO_TOOLS,
) -> bytes | Failure:
    views = [tool.sanitized().view(learned.get(tool.name, "")) for tool in tools]
    whole = next(
        (tool.whole().view(learned.get(tool.name, "")) for tool in tools if tool.name == request.subtool),
        None,
    )
    return introspect.answer(child, views, request, settings, instructions, if_none, whole)


def _compacted(schema: Raw) -> Raw:
    """Return the schema without members that only cost tokens; unchanged if it cannot be decoded."""
    try:
        return Raw(jsonrpc.encode(compact(msgspec.json.decode(schema))))
    except (msgspec.MsgspecError, OverflowError, RecursionError):
        return schema


def _parameter_names(child: Child, subtool: str) -> frozenset[str]:
    """Return the names of a subtool's parameters. With an unreadable schema, assume that both wrappers are some."""
    schema = child.inventory.tools[subtool].input_schema
    if schema is UNSET:
        return frozenset()
    try:
        decoded = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return WRAPPERS
    properties = decoded.get("properties") if isinstance(decoded, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()
