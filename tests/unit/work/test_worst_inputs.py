"""No text or schema of 1 MiB from a child, a host or Redis stops the event loop for 100 ms.

Each function that works on such input has a row. One that runs on the loop is measured whole. Of one that runs in the
work thread, the cost must grow with the input only; the interpreter switches threads while it runs. All times are CPU
times of the thread, the best of a few, so that a busy machine does not matter.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from switchboard_mcp import protocol, redaction, suites
from switchboard_mcp.ask import schema_check
from switchboard_mcp.children import catalog
from switchboard_mcp.config import agent_names
from switchboard_mcp.config.models import Expose
from switchboard_mcp.config.sandbox import HostRule, parse_host
from switchboard_mcp.errors import failure, is_network_failure
from switchboard_mcp.gateway.gate import arguments as gate_arguments
from switchboard_mcp.gateway.pipeline import result_pages
from switchboard_mcp.hosts import traits
from switchboard_mcp.mail import path_patterns
from switchboard_mcp.mail.store import filenames, message_validation
from switchboard_mcp.mail.terminal import input_safety
from switchboard_mcp.policy import access, drift, resource_uris, tool_hash
from switchboard_mcp.policy.gate import spellings as gate_spellings
from switchboard_mcp.policy.gate.conditions import StarPatterns
from switchboard_mcp.policy.launch import rules
from switchboard_mcp.programs import shapes
from switchboard_mcp.programs.checking import names, stubs
from switchboard_mcp.programs.checking.stubs import ProgramTool
from switchboard_mcp.protocol import (
    apps,
    framing,
    http_headers,
    jsonrpc,
    message_meta,
    method_traits,
    result_ids,
    session_record,
    skills,
    sse,
    trace_context,
)
from switchboard_mcp.redaction import arguments, redactor
from switchboard_mcp.sandbox import denials, egress
from switchboard_mcp.sandbox.plan import Launch, SandboxPlan
from switchboard_mcp.server.http import transport_security
from switchboard_mcp.suites import (
    fuzzy,
    invisible_characters,
    sanitize,
    schema_compaction,
    search,
    signature,
    suite_arguments,
    suite_names,
    summary,
    text_analysis,
    token_estimate,
)
from switchboard_mcp.suites.results import tables
from switchboard_mcp.system import star_patterns
from switchboard_mcp.transport.stdio import READ_BYTES
from tests.cases import each_case
from tests.unit.work.worst_inputs import MIB, SCHEMAS, TEXTS, schema, text

STALL_S = 0.1
# For four times the size: linear work costs four times as much, quadratic work sixteen times.
GROWTH = 10.0
RUNS = 3
# CPU time of the work in `slowness` on an idle machine.
REFERENCE_S = 0.015

# Every function is tried with a quarter of the inputs, and with the others in a soak test.
SHARES = 4
shares = pytest.mark.parametrize(
    "share", [0, *(pytest.param(share, marks=pytest.mark.soak("floods")) for share in range(1, SHARES))]
)

PLAN = SandboxPlan(Launch([], {}, "/"), {}, [], [], [], ["/read"], ["/write"], ["/write/.git"])

Work = Callable[[], object]


def json(value: object) -> bytes:
    return msgspec.json.encode(value)


def masking() -> redactor.Redactor:
    made = redactor.Redactor()
    made.register("hunter2-secret-value")
    made.register("another secret/with+characters")
    return made


STAR_PATTERNS = StarPatterns.compile(["a*", "*b", "*c*", "*a*b*c*", "x*y*z"])
MASKS = ("a*b*c", "x.*y*z.**.q", "password")
GLOBS = access.access(Expose(allow=["*a*a*b", "[a-z]*?*b"], deny=["*x*y*z"]))
REDACTOR = masking()


def changed(node: Any, depth: int = 0) -> Any:
    """Return a copy of a schema in which every part differs."""
    if isinstance(node, dict) and depth < 100:
        return {**{key: changed(value, depth + 1) for key, value in node.items()}, "zz": 1}
    return [changed(item, depth + 1) for item in node[:1000]] if isinstance(node, list) else node


def described_drift(before: object, after: object) -> None:
    for change in drift.compare("t", {"inputSchema": before}, {"inputSchema": after}):
        change.describe(drift.FOR_MODELS)


SEARCHED = search.Index(
    [
        search.SearchDocument(f"tool_{i}", f"Reads thing number {i} of the archive.", "server")
        for i in range(3000)
    ]
)
DRIFTED: dict[bytes, Any] = {}


def recently(value: str) -> None:
    hidden = masking()
    hidden.register_recent([value, value[1:], value[2:]])
    hidden.redact_text("an error of a child " * 100)


def paged(result: bytes) -> None:
    split = result_pages.split_result(result)
    if split is not None:
        result_pages.build_page(split, result_pages.PageStart(), 20_000)


def tool(raw: bytes) -> Raw:
    return Raw(json({"name": "a", "inputSchema": Raw(raw)}))


# Functions that work on text, on the loop. `size` is what may reach them at once.
ON_TEXT: dict[str, tuple[Callable[[str], object], int]] = {
    "hosts.traits.traits_of": (lambda t: traits.traits_of(t, t), MIB),
    "hosts.traits.parse_version": (traits.parse_version, MIB),
    "protocol.framing.FrameDecoder": (lambda t: framing.FrameDecoder().feed(t.encode()), READ_BYTES),
    "protocol.sse.EventStream": (lambda t: sse.EventStream().feed(t.encode()), READ_BYTES),
    "protocol.jsonrpc.parse": (
        lambda t: jsonrpc.parse(f'{{"jsonrpc":"2.0","id":1,"method":"{t}"}}'.encode()),
        MIB,
    ),
    "protocol.jsonrpc.parse (raw)": (lambda t: jsonrpc.parse(t.encode("utf-8", "replace")), MIB),
    "protocol.session_record.read_session": (
        lambda t: session_record.read_session(
            [],
            [jsonrpc.request(b"1", "resources/subscribe", json({"uri": t}))],
            [jsonrpc.result(b"1", json(t))],
        ),
        MIB,
    ),
    "protocol.session_record.find_requests": (
        lambda t: session_record.find_requests(data := t.encode("utf-8", "replace"), 0, len(data), {b"1"}),
        MIB,
    ),
    "protocol.jsonrpc.split_batch": (lambda t: jsonrpc.split_batch(f"[{t}{{}}]".encode()), MIB),
    "protocol.jsonrpc.parse_error": (
        lambda t: jsonrpc.parse_error(Raw(json({"code": 1, "message": t}))),
        MIB,
    ),
    "protocol.jsonrpc.without_data": (
        lambda t: jsonrpc.without_data(json({"code": 1, "message": t, "data": t}), 4000),
        MIB // 2,
    ),
    "protocol.jsonrpc.canonicalize": (lambda t: jsonrpc.canonicalize(json({"a": t})), MIB),
    "protocol.jsonrpc.replace_invalid_utf8": (
        lambda t: jsonrpc.replace_invalid_utf8(t.encode() + b"\xff"),
        MIB,
    ),
    "protocol.jsonrpc.replace_lone_surrogates": (
        lambda t: jsonrpc.replace_lone_surrogates(t.encode() + rb"\ud800"),
        MIB,
    ),
    "protocol.jsonrpc.find_id": (lambda t: jsonrpc.find_id(t.encode()[:1024], t.encode()[-1024:]), MIB),
    "protocol.jsonrpc.starts_like_response": (lambda t: jsonrpc.starts_like_response(t.encode()[:1024]), MIB),
    "protocol.method_traits.fold_name": (method_traits.fold_name, MIB),
    "protocol.method_traits.another_spelling": (
        lambda t: method_traits.another_spelling([t], frozenset({"name"})),
        MIB,
    ),
    "protocol.method_traits.misspelled_member": (
        lambda t: method_traits.misspelled_member("tools/call", {t: Raw(b"1")}),
        MIB,
    ),
    "protocol.http_headers.encode_value": (http_headers.encode_value, MIB),
    "protocol.http_headers.decode_value": (lambda t: http_headers.decode_value(f"=?base64?{t}?="), MIB),
    "protocol.trace_context.trace_headers": (
        lambda t: trace_context.trace_headers(
            jsonrpc.RpcMessage(params=Raw(json({"_meta": {"traceparent": t, "tracestate": t}})))
        ),
        MIB,
    ),
    "protocol.message_meta.translate_error": (
        lambda t: message_meta.translate_error(
            Raw(json({"code": -32002, "message": t})), stateless=True, same_family=False
        ),
        MIB,
    ),
    "suites.suite_arguments.parse": (
        lambda t: suite_arguments.parse(Raw(json({"action": "call", "subtool": "a", "args": t})), "c"),
        MIB,
    ),
    "suites.suite_arguments.unwrap": (
        lambda t: suite_arguments.unwrap(b'{"args":' * 500 + json({"a": t}) + b"}" * 500, frozenset()),
        MIB,
    ),
    "suites.sanitize.for_model": (sanitize.for_model, MIB),
    "errors.is_network_failure": (is_network_failure, MIB),
    "suites.sanitize.is_plain": (lambda t: sanitize.is_plain(Raw(json(t))), MIB),
    "suites.sanitize.clean": (sanitize.clean, 64 * 1024),  # longer ones come by way of `for_model`
    "suites.summary.summarise": (partial(summary.summarise, limit=160), MIB),
    "suites.invisible_characters.find_invisible": (
        lambda t: invisible_characters.find_invisible(t, allowed="\n"),
        64 * 1024,  # longer texts are refused before
    ),
    "suites.summary.one_line": (summary.one_line, MIB),
    "suites.fuzzy.nearest": (
        lambda t: fuzzy.nearest(t[:64], [t[: i % 64] + f"{i:x}" for i in range(10_000)]),
        MIB,
    ),
    "suites.fuzzy.nearest (long)": (lambda t: fuzzy.nearest(t, [t, t + "a"]), MIB),
    "suites.fuzzy.did_you_mean": (lambda t: fuzzy.did_you_mean(t, [t[:60], t[1:50]]), MIB),
    "suites.search.Index.search": (SEARCHED.search, MIB),
    "suites.text_analysis.words": (text_analysis.words, 64 * 1024),  # fields and queries are cut
    "suites.text_analysis.meaningful": (text_analysis.meaningful, 64 * 1024),
    "suites.text_analysis.wanted_words": (text_analysis.wanted_words, 64 * 1024),
    "suites.search.query_stems": (search.query_stems, MIB),
    "suites.text_analysis.stem": (text_analysis.stem, MIB),
    "suites.token_estimate.estimate": (token_estimate.estimate, MIB),
    "suites.suite_names.unique_tool_name": (lambda t: suite_names.unique_tool_name({t}, t, "c"), 1024),
    "redaction.redactor.Redactor.redact_text": (REDACTOR.redact_text, MIB),
    "redaction.redactor.Redactor.redact_and_clip": (lambda t: REDACTOR.redact_and_clip(t, 4000), MIB),
    "redaction.redactor.Redactor.mask_registered_json": (
        lambda t: REDACTOR.mask_registered_json(json(t)),
        64 * 1024,  # longer errors lose their data before
    ),
    "redaction.redactor.Redactor.redact_failure": (
        lambda t: REDACTOR.redact_failure(failure("child_error", t, data=Raw(json([t])))),
        MIB,
    ),
    "redaction.redactor.Redactor.register_recent": (recently, MIB),
    "redaction.redactor.is_secret_name": (redactor.is_secret_name, MIB),
    "policy.access.Access.permits": (GLOBS.permits, MIB),
    "policy.access.denial": (lambda t: access.denial("c", "s", t), MIB),
    "policy.drift.word_diff": (lambda t: drift.word_diff(t, t[1:] + "b"), MIB),
    "policy.drift.word_diff (short)": (lambda t: drift.word_diff(t[:18_000], t[100:19_000] + "b"), MIB),
    "policy.tool_hash.text_digest": (tool_hash.text_digest, MIB),
    "policy.tool_hash.kept_lines": (tool_hash.kept_lines, MIB),
    "policy.tool_hash.one_line": (tool_hash.one_line, MIB),
    "policy.launch.rules.fits": (lambda t: rules.fits(t, "*a*a*b"), MIB),
    "system.star_patterns.matches_stars": (
        lambda t: star_patterns.matches_stars(t, ["", "a", "a", "b"]),
        MIB,
    ),
    "config.agent_names.agent_name": (agent_names.agent_name, MIB),
    "sandbox.denials.find_denials": (lambda t: denials.find_denials(f"EACCES {t}", PLAN), MIB),
    "sandbox.denials.find_denials (quoted)": (lambda t: denials.find_denials(f"EACCES '{t}'", PLAN), MIB),
    "sandbox.denials.network_denial": (lambda t: denials.network_denial(f"fetch https://{t}", "none"), MIB),
    "sandbox.egress.parse_query": (lambda t: egress.parse_query(t.encode("utf-8", "replace")), MIB),
    "sandbox.egress.is_host_name": (egress.is_host_name, MIB),
    "sandbox.egress.find_rule": (lambda t: egress.find_rule([HostRule("*.a", (1,))], t, 1), MIB),
    "config.sandbox.parse_host": (parse_host, MIB),
    "config.agent_names.is_agent_name": (agent_names.is_agent_name, MIB),
    "mail.path_patterns.normal_path": (path_patterns.normal_path, MIB),
    "mail.path_patterns.artifact_path": (path_patterns.artifact_path, MIB),
    "mail.path_patterns.fits": (lambda t: path_patterns.fits(t, "*?" * 100), path_patterns.LONGEST_PATH),
    "mail.path_patterns.overlap": (
        lambda t: path_patterns.overlap("*?" * 100, "*a" * 100),
        path_patterns.LONGEST_PATH,
    ),
    "mail.store.message_validation.from_file": (
        lambda t: message_validation.from_file(
            json(
                {
                    "sender": t,
                    "recipient": "b",
                    "action": "status_update",
                    "payload": t,
                    "metadata": {"ackBy": t},
                }
            ),
            "b",
            "msg_1.json",
            "2026-01-01T00:00:00Z",
        ),
        MIB // 3,
    ),
    "mail.store.message_validation.from_file (raw)": (
        lambda t: message_validation.from_file(t.encode(), "b", "msg_1.json", "2026-01-01T00:00:00Z"),
        MIB,
    ),
    "mail.store.filenames.parse": (lambda t: filenames.parse("inbox", t), MIB),
    "mail.store.filenames.is_message_id": (filenames.is_message_id, MIB),
    "mail.store.filenames.printable": (filenames.printable, MIB),
    "mail.terminal.input_safety.to_keystrokes": (
        lambda t: input_safety.to_keystrokes(t, bracketed=True),
        MIB,
    ),
    "policy.resource_uris.spellings": (resource_uris.spellings, MIB),
    "policy.resource_uris.spellings (short)": (resource_uris.spellings, resource_uris.MAX_URI_CHARS),
    "policy.resource_uris.matches_template": (
        lambda t: resource_uris.matches_template("a{" + t, "a" + t),
        MIB,
    ),
    "policy.gate.spellings.hosts_of": (lambda t: gate_spellings.hosts_of(f"http://{t}"), MIB),
    "policy.gate.conditions.StarPatterns": (STAR_PATTERNS.match, MIB),
    "gateway.gate.arguments.readings": (lambda t: gate_arguments.readings(json({"a": t})), MIB),
    "gateway.pipeline.result_pages": (
        lambda t: paged(json({"content": [{"type": "text", "text": t}, {"type": "text", "text": "a"}]})),
        MIB,
    ),
    "server.http.transport_security.host_name": (transport_security.host_name, 64 * 1024),
    "programs.checking.stubs.mentioned": (stubs.mentioned, 200 * 1024),  # of the code of a program
    "programs.checking.names.python_names": (lambda t: names.python_names([t, f"{t}a"]), MIB),
}

# As large as a shape may be.
SHAPE = shapes.bounded(
    shapes.shape_of({f"f{a}": {f"g{b}": [{"h": 1}] for b in "abcdefghijklm"} for a in "abcdefghijklmnop"})
)

# Functions that work on decoded or encoded schemas and other JSON, on the loop.
ON_JSON: dict[str, Callable[[Any, bytes], object]] = {
    # A call into C code that the work thread makes: meanwhile no other thread runs.
    "msgspec.json.encode": lambda value, raw: msgspec.json.encode(value, order="sorted"),
    "protocol.http_headers.find_mirrors": lambda value, raw: http_headers.find_mirrors(raw),
    "protocol.apps.tool_ui": lambda value, raw: apps.tool_ui(Raw(json({"_meta": {"ui": Raw(raw)}}))),
    "protocol.apps.declares_apps": lambda value, raw: apps.declares_apps(
        json({"extensions": {apps.EXTENSION: Raw(raw)}})
    ),
    "protocol.apps.rename_ui": lambda value, raw: apps.rename_ui(
        Raw(json({"inputSchema": Raw(raw), "_meta": {"ui": {"resourceUri": "ui://a"}}})), str.upper
    ),
    "protocol.apps.for_apps_only": lambda value, raw: apps.for_apps_only(
        Raw(json({"_meta": {"a": Raw(raw)}})), "a"
    ),
    "protocol.apps.without_page": lambda value, raw: apps.without_page(
        Raw(json({"inputSchema": Raw(raw), "_meta": {"ui": {"resourceUri": "ui://a"}}}))
    ),
    "protocol.apps.link_page": lambda value, raw: apps.link_page(
        Raw(json({"content": [], "_meta": {"ui": Raw(raw)}})), "ui://a"
    ),
    "protocol.apps.page_record": lambda value, raw: apps.page_record(
        "ui://a", Raw(json({"contents": [{"text": raw.decode(), "_meta": {"ui": Raw(raw)}}]}))
    ),
    "protocol.skills.offers_skills": lambda value, raw: skills.offers_skills({"extensions": Raw(raw)}),
    "protocol.skills.offers_directories": lambda value, raw: skills.offers_directories(
        {"extensions": Raw(json({skills.EXTENSION: Raw(raw)}))}
    ),
    "protocol.skills.read_skill": lambda value, raw: skills.read_skill(
        Raw(json({"uri": "skill://a/SKILL.md", "frontmatter": {"a": Raw(raw)}}))
    ),
    "protocol.skills.rename_skill": lambda value, raw: skills.rename_skill(
        Raw(json({"uri": "skill://a", "resources": [{"uri": "skill://a", "a": Raw(raw)}]})), str.upper
    ),
    "protocol.skills.rename_result": lambda value, raw: skills.rename_result(
        Raw(json({"skill": {"uri": "skill://a", "a": Raw(raw)}})), str.upper
    ),
    "protocol.skills.read_content": lambda value, raw: skills.read_content(
        json({"contents": [{"text": raw.decode()}]})
    ),
    "protocol.skills.describe_file": lambda value, raw: skills.describe_file("skill://a", raw),
    "protocol.skills.read_manifest": lambda value, raw: skills.read_manifest(
        "skill://a", json({"files": [{"path": "a", "size": 1, "hash": "x", "a": Raw(raw)}]})
    ),
    "protocol.skills.read_frontmatter": lambda value, raw: skills.read_frontmatter(b"---\n" + raw),
    "protocol.skills.build_entry": lambda value, raw: skills.build_entry(
        "skill://a/SKILL.md", b"---\nname: a\ndescription: b\n---\n" + raw, []
    ),
    "protocol.apps.without_domain": lambda value, raw: apps.without_domain(
        [{"_meta": Raw(json({"ui": {"domain": Raw(raw)}}))}]
    ),
    "protocol.message_meta.translate_tool": lambda value, raw: message_meta.translate_tool(
        Raw(json({"name": "a", "execution": {}, "outputSchema": Raw(raw)})), stateless=True, same_family=False
    ),
    "protocol.message_meta.client_name": lambda value, raw: message_meta.client_name(msgspec.Raw(raw)),
    "protocol.message_meta.client_version": lambda value, raw: message_meta.client_version(msgspec.Raw(raw)),
    "suites.results.tables.to_tables": lambda value, raw: tables.to_tables(raw.decode()),
    "protocol.message_meta.to_legacy_result": lambda value, raw: message_meta.to_legacy_result(raw),
    "protocol.message_meta.to_stateless_result": lambda value, raw: message_meta.to_stateless_result(raw),
    "protocol.jsonrpc.parse": lambda value, raw: jsonrpc.parse(jsonrpc.result(b"1", raw)),
    "suites.suite_arguments.parse": lambda value, raw: suite_arguments.parse(
        Raw(json({"action": "call", "subtool": "a", "args": Raw(raw)})), "c"
    ),
    "policy.drift.compare": lambda value, raw: described_drift(value, DRIFTED.get(raw) or value),
    "redaction.redactor.Redactor.redact_failure": lambda value, raw: REDACTOR.redact_failure(
        failure("child_error", "x", data=Raw(raw))
    ),
    "protocol.result_ids.links": lambda value, raw: list(
        result_ids.links(json({"messages": [{"content": [{"type": "resource_link"}]}] * 20_000}))
    ),
    "children.catalog.read_tools": lambda value, raw: catalog.read_tools([tool(raw)]),
    "ask.schema_check.check": lambda value, raw: schema_check.check(
        value, {"a": list(range(1000)), "1": value}
    ),
    "suites.signature.unwrapped": lambda value, raw: signature.unwrapped(value),
    "programs.shapes.merge": lambda value, raw: shapes.bounded(shapes.merge(SHAPE, SHAPE)),
}

# Functions that take longer than the loop may wait: they run in the work thread, in another thread or process, or in a
# command.
OFF_LOOP: dict[str, Callable[[Any, bytes], object]] = {
    "mail.store.message_validation.from_file": lambda value, raw: message_validation.from_file(
        json(
            {"sender": "a", "recipient": "b", "action": "status_update", "payload": "", "metadata": Raw(raw)}
        ),
        "b",
        "msg_1.json",
        "2026-01-01T00:00:00Z",
    ),
    "suites.signature.signature": lambda value, raw: signature.signature(value),
    "suites.signature.result_type": lambda value, raw: signature.result_type(value),
    "programs.checking.stubs.checked": lambda value, raw: stubs.checked(
        "m", "m", [ProgramTool("a", value, value)], frozenset("a")
    ).text(),
    "programs.shapes.shape_of": lambda value, raw: shapes.difference(shapes.shape_of(value), value),
    "suites.schema_compaction.compact": lambda value, raw: schema_compaction.compact(value),
    "suites.sanitize.clean_schema": lambda value, raw: sanitize.clean_schema(Raw(raw)),
    "suites.sanitize.clean_listed": lambda value, raw: sanitize.clean_listed(tool(raw), "name"),
    "suites.sanitize.clean_tool": lambda value, raw: sanitize.clean_tool(
        Raw(json({"name": "a", "inputSchema": Raw(raw)}))
    ),
    "policy.tool_hash.normalize": lambda value, raw: tool_hash.normalize(
        json({"name": "a", "inputSchema": Raw(raw)})
    ),
    "policy.tool_hash.digest": lambda value, raw: tool_hash.digest("a", {"inputSchema": value}),
    "redaction.arguments.mask_args": lambda value, raw: arguments.mask_args(MASKS, raw),
    "redaction.arguments.hidden_values": lambda value, raw: arguments.hidden_values(MASKS, Raw(raw)),
}

# Functions without a row, and why.
EXEMPT = {
    "a constant number of steps on bounded values": """
        protocol.client_requests.missing_capability protocol.client_requests.undeclared_capabilities
        protocol.client_requests.capabilities_for_stateless protocol.method_traits.traits_of
        protocol.versions.negotiate_legacy protocol.versions.is_legacy protocol.versions.allows_batches
        protocol.versions.is_stateless protocol.versions.newest_legacy
        protocol.versions.negotiate_stateless protocol.message_meta.is_stateless
        protocol.message_meta.client_capabilities protocol.message_meta.is_object protocol.http_headers.to_text
        suites.text_analysis.synonyms suites.text_analysis.meanings
        suites.savings.saving suites.savings.session suites.savings.summarise
        mail.path_patterns.is_pattern mail.store.message_validation.has_message_name""",
    "one call of msgspec, which reads a MiB in milliseconds": """
        protocol.result_ids.created_task protocol.result_ids.request_state protocol.result_ids.next_cursor
        protocol.result_ids.elicitation protocol.result_ids.required_elicitations protocol.result_ids.task_concerned
        protocol.client_requests.declares_tasks protocol.client_requests.requires_tasks
        protocol.client_requests.has_roots
        protocol.client_requests.offers_tasks
        protocol.result_ids.reported_task protocol.result_ids.poll_interval_s protocol.result_ids.with_task_id
        protocol.client_requests.are_input_responses
        protocol.client_requests.to_input_request protocol.client_requests.to_legacy_params
        protocol.client_requests.url_input_requests protocol.client_requests.replace_progress_token
        protocol.message_meta.validate protocol.message_meta.decode_text protocol.message_meta.child_meta
        protocol.message_meta.result_type protocol.message_meta.strip_protocol_keys
        protocol.message_meta.parse_input_required protocol.message_meta.input_required_result
        protocol.http_headers.request_headers protocol.http_headers.argument_headers
        protocol.jsonrpc.get_error protocol.jsonrpc.request protocol.jsonrpc.notification protocol.jsonrpc.result
        protocol.jsonrpc.error protocol.jsonrpc.error_body policy.tool_hash.value_digest
        suites.savings.flat_listing mail.store.message_validation.validate""",
    "a part of a function with a row": """
        protocol.result_ids.task_links
        suites.schema_compaction.pointer suites.schema_compaction.resolve suites.suite_arguments.normalize
        redaction.encodings.encoded_forms redaction.encodings.unescape_layers
        policy.drift.compare_tools policy.drift.compare_text suites.fuzzy.rank
        mail.store.message_validation.from_draft""",
    "works on the config, or on names that this program has made": """
        config.agent_names.token_name_problem
        suites.suite_names.suite_names suites.suite_names.twin_names
        redaction.arguments.compile_masks policy.access.access policy.access.patterns
        policy.access.nothing_allowed policy.access.nothing_allowed_remedy
        mail.store.filenames.order_in
        mail.store.filenames.new_lease mail.store.filenames.is_store_id mail.store.filenames.name_patterns
        mail.store.filenames.waiting_name mail.store.filenames.claimed_name mail.store.filenames.shipped_name
        mail.store.filenames.settled_name mail.store.filenames.foreign_stem mail.store.filenames.parse_foreign_name
        mail.store.filenames.receipt_name mail.store.filenames.parse_receipt_name""",
    "a prefix": """protocol.kept_schemes.keeps_scheme protocol.kept_schemes.host_uri
        protocol.kept_schemes.child_uri suites.suite_names.twin_names""",
    "a few calls of functions with a row": """suites.introspect.answer suites.detail_levels.describe
        suites.detail_levels.decoded_schema suites.detail_levels.fit_each""",
    "runs in a command, or on tools up to 64 KiB": """
        suites.sanitize.escape_hidden suites.savings.measure suites.savings.measure_weight""",
}


def cpu_s(work: Work, enough_s: float) -> float:
    """Return the CPU time of the work on an idle machine: the best of a few runs, until it is low enough.

    Other programs slow down the memory and the caches that all share, so the time is divided by how much slower a
    fixed piece of work is meanwhile.
    """
    best = float("inf")
    for _ in range(RUNS):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
        if best >= enough_s:
            best /= slowness()
        if best < enough_s:
            break
    return best


def slowness() -> float:
    """Return how much slower this machine is now than an idle one, at least 1."""
    began = time.thread_time()
    len({str(number): [number] for number in range(40_000)})
    return max(1.0, (time.thread_time() - began) / REFERENCE_S)


@pytest.fixture(autouse=True, scope="module")
def _small_heap() -> Iterator[None]:
    """Keep the objects of all the other tests out of the garbage collections that are measured here."""
    gc.freeze()
    yield
    gc.unfreeze()


@shares
def test_no_text_of_a_mebibyte_stops_the_loop(share: int) -> None:
    slow = {
        (name, kind): taken
        for number, (name, (work, size)) in enumerate(ON_TEXT.items())
        for kind in list(TEXTS)[(number + share) % SHARES :: SHARES]
        if (taken := cpu_s(partial(work, text(kind, size)), STALL_S)) >= STALL_S
    }
    assert not slow


@shares
def test_no_schema_of_a_mebibyte_stops_the_loop(share: int) -> None:
    slow = {}
    for number, kind in enumerate(SCHEMAS):
        value = schema(kind)
        raw = json(value)
        DRIFTED.clear()
        DRIFTED[raw] = changed(value)
        for name, work in list(ON_JSON.items())[(number + share) % SHARES :: SHARES]:
            if (taken := cpu_s(partial(work, value, raw), STALL_S)) >= STALL_S:
                slow[name, kind] = taken
    assert not slow


@each_case("kind", SCHEMAS)
def test_decoding_the_largest_schema_does_not_hold_the_interpreter_for_long(kind: str) -> None:
    raw = json(schema(kind, tool_hash.MAX_TOOL_BYTES))
    assert cpu_s(lambda: msgspec.json.decode(raw), STALL_S) < STALL_S


@shares
def test_work_in_the_thread_grows_with_the_size_of_the_schema_and_not_with_its_square(share: int) -> None:
    grown = {}
    for number, kind in enumerate(SCHEMAS):
        small, large = (
            (value, json(value)) for value in (schema(kind, size) for size in (MIB // 16, MIB // 4))
        )
        for name, work in list(OFF_LOOP.items())[(number + share) % SHARES :: SHARES]:
            if (ratio := growth(work, small, large)) > GROWTH:
                grown[name, kind] = ratio
    assert not grown


def growth(work: Callable[[Any, bytes], object], small: tuple[Any, bytes], large: tuple[Any, bytes]) -> float:
    """Return the factor by which the cost grows, the best of a few; 1 if it stays below anything worth measuring."""
    best = float("inf")
    gc.collect()
    gc.disable()  # how often it runs depends on everything that is alive
    try:
        for _ in range(RUNS):
            once, twice = cpu_s(partial(work, *small), STALL_S), cpu_s(partial(work, *large), STALL_S)
            best = min(best, twice / once if twice > 0.02 else 1.0)
            if best <= GROWTH:
                break
    finally:
        gc.enable()
    return best


def public_functions(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        ours = getattr(value, "__module__", "") == module.__name__ and hasattr(value, "__name__")
        if ours and not name.startswith("_") and callable(value) and not inspect.isclass(value):
            yield f"{module.__name__.removeprefix('switchboard_mcp.')}.{name}"


def test_every_function_on_the_text_of_others_has_a_row() -> None:
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in (suites, redaction, protocol)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    modules += [
        access,
        drift,
        resource_uris,
        tool_hash,
        star_patterns,
        path_patterns,
        agent_names,
        filenames,
        message_validation,
        traits,
    ]
    exempt = {name for names in EXEMPT.values() for name in names.split()}
    rows = {name.split(" (")[0] for table in (ON_TEXT, ON_JSON, OFF_LOOP) for name in table}
    functions = {name for module in modules for name in public_functions(module)}
    assert functions - rows - exempt == set(), "give it a row above, or a reason not to have one"
    assert exempt - functions == set(), "these are gone: remove them"
    assert exempt & rows == set()
