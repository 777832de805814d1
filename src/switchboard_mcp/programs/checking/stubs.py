"""Writes the tools of a suite as a Python module of stubs, from their JSON Schemas.

Two renderings with the same names. `checked` is for the type checker: it has no text of a server but names that were
cleaned and strings that were escaped, and no name in it can be shadowed by a tool (`_b.str`). `shown` is for a model:
short, with the first words of the descriptions. A definition that occurs twice is written once. A stub that the checker
does not understand would switch it off silently, so every stub is parsed before it leaves, and a function that fails
is written without types.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any
from unicodedata import normalize

from msgspec import Struct

from switchboard_mcp.programs.checking.names import python_names, type_name, unused_name
from switchboard_mcp.suites.schema_compaction import pointer, resolve
from switchboard_mcp.suites.signature import unwrapped
from switchboard_mcp.suites.summary import summarise

# Deeper parts are Any: a hostile schema must not exhaust the stack. One with too many parts is written less deep.
DEPTHS = (24, 3, 1)
# Parts of one tool's schemas that are written out. Several times the largest of 1,915 published tools.
MAX_PARTS = 4_000
MAX_LITERALS = 200
MAX_LITERAL_CHARS = 400
MAX_UNION = 12
TOOL_DOC_CHARS = 120
FIELD_DOC_CHARS = 60
PREAMBLE = "import builtins as _b\nimport typing as _t\nimport typing_extensions as _x\n"
# Builtins that run but that the checker does not know, and the value that a program is started with.
BUILTIN_STUBS = """\
import typing as _t
input: _t.Any
def map(function: _t.Any, *values: _t.Any) -> list[_t.Any]: ...
def filter(function: _t.Any, values: _t.Any) -> list[_t.Any]: ...
def getattr(value: _t.Any, name: str, default: _t.Any = ...) -> _t.Any: ...
def hasattr(value: _t.Any, name: str) -> bool: ...
def setattr(value: _t.Any, name: str, new: _t.Any) -> None: ...
def format(value: _t.Any, spec: str = ...) -> str: ...
class PermissionError(OSError): ...
class FileNotFoundError(OSError): ...
class FileExistsError(OSError): ...
class IsADirectoryError(OSError): ...
class NotADirectoryError(OSError): ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class UnboundLocalError(NameError): ...
class UnicodeDecodeError(ValueError): ...
class UnicodeEncodeError(ValueError): ...
"""
NONE = "None"
PRIMITIVES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_WORD = re.compile(r"\w+")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProgramTool(Struct, frozen=True):
    """A subtool as programs see it.

    `result_schema` is declared by the server, or learned from as many results as `seen` says.
    """

    name: str
    input_schema: object = None
    result_schema: object = None
    description: str = ""
    is_read: bool = False
    seen: int = 0


class StubFunction(Struct, frozen=True):
    """One function of a module. `parameters` has the argument of the subtool for each name in the program."""

    name: str
    tool: ProgramTool
    parameters: Mapping[str, str]
    required: frozenset[str]
    text: str
    records: tuple[str, ...] = ()


class StubModule(Struct, frozen=True):
    """The tools of one suite as a module: its functions by name, and the records they use.

    `names` has all functions of the suite, also those that a program does not mention.
    """

    name: str
    suite: str
    functions: Mapping[str, StubFunction]
    names: tuple[str, ...] = ()
    records: Mapping[str, StubRecord] = {}
    is_shown: bool = False

    def text(self, names: Iterable[str] | None = None) -> str:
        """Return the stub of these functions, or of all."""
        chosen = [stub for stub in self.functions.values() if names is None or stub.name in names]
        needed: dict[str, None] = {}
        for function in chosen:
            self._need(function.records, needed)
        parts = [] if self.is_shown else [PREAMBLE]
        parts += [self.records[name].text for name in self.records if name in needed]
        parts += [function.text for function in chosen]
        return "\n".join(parts) + "\n"

    def _need(self, names: Sequence[str], needed: dict[str, None]) -> None:
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed[name] = None
                waiting.extend(self.records[name].uses)


class StubRecord(Struct, frozen=True):
    """A record type: its definition, the records that it uses, and its keys."""

    text: str
    uses: tuple[str, ...]
    keys: tuple[str, ...]


def mentioned(code: str) -> frozenset[str]:
    """Return all words of a program, normalised as its identifiers are: it can name nothing else."""
    return frozenset(_WORD.findall(code if code.isascii() else normalize("NFKC", code)))


def checked(name: str, suite: str, tools: Sequence[ProgramTool], words: frozenset[str]) -> StubModule:
    """Return the module for the type checker, of the tools that a program mentions."""
    return _Module(is_shown=False).module(name, suite, tools, words)


def shown(name: str, suite: str, tools: Sequence[ProgramTool], *, with_docs: bool = True) -> StubModule:
    """Return the module as a model reads it."""
    return _Module(is_shown=True, with_docs=with_docs).module(name, suite, tools, None)


def function_names(tools: Iterable[str]) -> dict[str, str]:
    """Return the name of the function for each subtool."""
    return python_names(tools)


class _TooLargeError(Exception):
    """Stops the conversion of an excessive schema."""


class _Field(Struct, frozen=True):
    type: str
    is_required: bool
    doc: str = ""


class _Module:
    """Converts the tools of one module and keeps its records."""

    def __init__(self, *, is_shown: bool, with_docs: bool = False) -> None:
        self.is_shown = is_shown
        self.with_docs = with_docs
        self.builtin, self.typing, self.extended = ("", "", "") if is_shown else ("_b.", "_t.", "_x.")
        self.records: dict[str, StubRecord] = {}
        self.by_body: dict[str, str] = {}
        self.used: set[str] = set()
        self.counts: dict[str, int] = {}

    def module(
        self, name: str, suite: str, tools: Sequence[ProgramTool], words: frozenset[str] | None
    ) -> StubModule:
        """Return the module. Names are given to all tools, so they do not depend on what is mentioned."""
        names = function_names(tool.name for tool in tools)
        self.used = set(names.values())
        functions = {}
        for tool in tools:
            function = names[tool.name]
            if function not in functions and (words is None or function in words):
                functions[function] = self.function(function, tool)
        return StubModule(name, suite, functions, tuple(names.values()), self.records, self.is_shown)

    def function(self, name: str, tool: ProgramTool) -> StubFunction:
        """Return one function; without types if its schemas cannot be written as types."""
        for depth in DEPTHS:
            before = dict(self.records), dict(self.by_body), set(self.used), dict(self.counts)
            try:
                signature = self._function(name, tool, depth)
                if not self.is_shown:
                    added = [self.records[record].text for record in self.records if record not in before[0]]
                    ast.parse("\n".join([signature.text, *added]))
            except (_TooLargeError, RecursionError, SyntaxError, ValueError, MemoryError):
                self.records, self.by_body, self.used, self.counts = before
            else:
                return signature
        anything = f"{self.typing}Any"
        text = f"async def {name}(**arguments: {anything}) -> {anything}: ..."
        return StubFunction(name, tool, {}, frozenset(), text)

    def _function(self, name: str, tool: ProgramTool, depth: int) -> StubFunction:
        arguments = _Converter(self, tool.input_schema, name, depth)
        fields, others = arguments.members(tool.input_schema)
        names = python_names(fields)
        results = _Converter(self, unwrapped(tool.result_schema), f"{name}_result", depth)
        result = results.result()
        ordered = sorted(fields.items(), key=lambda item: not item[1].is_required)
        parameters = [
            f"{names[key]}: {field.type}" + ("" if field.is_required else " = ...") for key, field in ordered
        ]
        if others:
            free = unused_name("extra", set(names.values()), {})
            parameters.append(f"**{free}: {others}")
        listed = ", ".join((["*"] if fields else []) + parameters)
        text = f"async def {name}({listed}) -> {result}:{self.doc(tool, names, ordered)}"
        return StubFunction(
            name,
            tool,
            {python: key for key, python in names.items()},
            frozenset(names[key] for key, field in fields.items() if field.is_required),
            text,
            (*arguments.uses, *results.uses),
        )

    def doc(self, tool: ProgramTool, names: Mapping[str, str], ordered: Sequence[tuple[str, _Field]]) -> str:
        """Return the body of a function: its docstring from the tool's description and those of its parameters."""
        if not self.with_docs:
            return f" ...  # result seen {_times(tool.seen)}" if tool.seen and self.is_shown else " ..."
        about = _doc(tool.description, TOOL_DOC_CHARS)
        notes = [f"{names[key]}: {field.doc}" for key, field in ordered if field.doc]
        if tool.seen:
            notes.append(f"Type of the result: seen {_times(tool.seen)}.")
        if not about and not notes:
            return " ..."
        lines = "".join(f"\n    {note}" for note in notes)
        return f'\n    """{about}{lines}"""'

    def record(
        self, wanted: str, fields: Mapping[str, _Field], others: str, uses: Iterable[str], reserved: str
    ) -> str:
        """Add a record unless an equal one exists, and return its name."""
        body = repr([(key, field.type, field.is_required) for key, field in fields.items()]) + others
        if not reserved and body in self.by_body:
            return self.by_body[body]
        name = reserved or unused_name(wanted, self.used, self.counts)
        self.by_body.setdefault(body, name)
        self.records[name] = StubRecord(self._record_text(name, fields, others), tuple(uses), tuple(fields))
        return name

    def _record_text(self, name: str, fields: Mapping[str, _Field], others: str) -> str:
        base = f"{self.extended}TypedDict"
        extra = f", extra_items={others}" if others else ""
        optional = f"{self.typing}NotRequired"
        types = {
            key: field.type if field.is_required else f"{optional}[{field.type}]"
            for key, field in fields.items()
        }
        if not all(_is_plain(key) for key in fields):
            members = ", ".join(f"{key!a}: {text}" for key, text in types.items())
            return f'{name} = {base}("{name}", {{{members}}}{extra})'
        lines = [f"class {name}({base}{extra}):"]
        for key, text in types.items():
            note = f"  # {fields[key].doc}" if self.with_docs and fields[key].doc else ""
            lines.append(f"    {key}: {text}{note}")
        return "\n".join(lines if fields else [*lines, "    pass"])


class _Converter:
    """Converts one schema of a tool to a type."""

    def __init__(self, module: _Module, root: object, name: str, depth: int) -> None:
        self.module = module
        self.max_depth = depth
        self.root = root
        self.name = name
        self.left = MAX_PARTS
        self.uses: dict[str, None] = {}
        self.open: dict[tuple[str, ...], str] = {}  # records being written, with the name if it is needed
        self.open_others: set[tuple[str, ...]] = set()
        self.done: dict[tuple[str, ...], str] = {}
        b, t = module.builtin, module.typing
        self.any = f"{t}Any"
        self.list, self.dict = f"{b}list", f"{b}dict"
        self.sequence, self.mapping, self.literal = f"{t}Sequence", f"{t}Mapping", f"{t}Literal"
        self.primitives = {key: f"{b}{name}" for key, name in PRIMITIVES.items()}

    def result(self) -> str:
        """Return the type of a result."""
        return self.type(self.root, (self.name,), 0)

    def members(self, schema: object) -> tuple[dict[str, _Field], str]:
        """Return the parameters of a function, and the type of unknown ones; empty if there are none."""
        merged = self.merge(schema, 0)
        variants = [self.merge(variant, 0) for variant in self.variants(merged, 0)]
        fields = self.alternatives(variants or [merged], (self.name,), 0)
        others = merged.get("additionalProperties")
        open_ = others is True or (isinstance(others, dict) and "additionalProperties" in merged)
        if merged.get("patternProperties"):
            return fields, self.any
        return fields, self.type(others, (self.name, "extra"), 1) if open_ else ""

    def spend(self) -> None:
        """Count one more part."""
        self.left -= 1
        if self.left < 0:
            raise _TooLargeError

    # --- schemas ---

    def merge(self, node: object, depth: int) -> dict[str, Any]:
        """Return a schema with its `$ref` and `allOf` merged in, and the properties of its conditions as optional."""
        self.spend()
        if not isinstance(node, dict) or depth > self.max_depth:
            return {}
        merged = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        parts = []
        if "$ref" in node:
            parts.append(self.merge(self.target(node["$ref"]), depth + 1))
        if isinstance(node.get("allOf"), list):
            parts.extend(self.merge(part, depth + 1) for part in node["allOf"])
        for part in parts:
            merged = _both(merged, part)
        for case in _conditional(merged):
            extra = self.merge(case, depth + 1).get("properties")
            if isinstance(extra, dict) and extra:
                properties = merged.get("properties")
                merged["properties"] = {**extra, **(properties if isinstance(properties, dict) else {})}
        return merged

    def target(self, ref: object) -> object:
        """Return the part that a reference names, or None."""
        path = pointer(ref)
        return None if path is None else resolve(self.root, path)

    def variants(self, node: dict[str, Any], depth: int) -> list[dict[str, Any]]:
        """Return the alternatives of a schema, each with the parent's own keywords merged in."""
        for keyword in ("anyOf", "oneOf"):
            options = node.get(keyword)
            if isinstance(options, list) and options:
                rest = {key: value for key, value in node.items() if key != keyword}
                return [_both(rest, self.merge(option, depth + 1)) for option in options]
        return []

    # --- types ---

    def type(self, node: object, path: tuple[str, ...], depth: int) -> str:
        """Return the type of a schema."""
        self.spend()
        if not isinstance(node, dict) or depth > self.max_depth:
            return self.any
        if "$ref" in node:
            return self.reference(node, path, depth)
        return self.merged_type(self.merge(node, depth), path, depth)

    def reference(self, node: dict[str, Any], path: tuple[str, ...], depth: int) -> str:
        """Return the type of a reference. A recursive one is the name of the record that it is in, or Any."""
        steps = pointer(node["$ref"])
        if steps is None:
            return self.any
        alone = not (node.keys() - {"$ref", "description", "title", "default", "examples"})
        if alone and steps in self.done:
            return self.done[steps]
        if steps in self.open:
            if not self.open[steps]:
                name = unused_name(
                    type_name(steps[-1] if steps else self.name), self.module.used, self.module.counts
                )
                self.open[steps] = name
            self.uses[self.open[steps]] = None
            return self.open[steps]
        target = self.merge(node, depth)
        if not _is_record(target):
            return self.other_reference(target, path, depth, steps)
        self.open[steps] = ""
        place = (steps[-1],) if steps and not steps[-1].isdigit() else path
        text = self.record_type(target, place, depth, steps)
        del self.open[steps]
        if alone:
            self.done[steps] = text
        return text

    def other_reference(
        self, target: dict[str, Any], path: tuple[str, ...], depth: int, steps: tuple[str, ...]
    ) -> str:
        """Return the type of a reference to something other than a record. Recursion without a record has no type."""
        if steps in self.open_others:
            return self.any
        self.open_others.add(steps)
        text = self.merged_type(target, path, depth)
        self.open_others.discard(steps)
        return text

    def merged_type(self, node: dict[str, Any], path: tuple[str, ...], depth: int) -> str:
        """Return the type of a schema without references."""
        values = [node["const"]] if "const" in node else node.get("enum")
        if isinstance(values, list) and values:
            return self.literals(values)
        variants = self.variants(node, depth)
        if variants:
            if len(variants) > MAX_UNION:
                return self.any
            return self.union(self.merged_type(variant, path, depth + 1) for variant in variants)
        declared = node.get("type")
        if isinstance(declared, list):
            kinds = [kind for kind in declared if isinstance(kind, str)][:MAX_UNION]
            text = self.union(self.one_type(kind, node, path, depth) for kind in kinds) if kinds else self.any
        else:
            text = self.one_type(declared if declared is not None else _implied(node), node, path, depth)
        return self.union([text, NONE]) if node.get("nullable") is True else text

    def one_type(self, kind: object, node: dict[str, Any], path: tuple[str, ...], depth: int) -> str:
        self.spend()
        if kind == "object":
            return self.record_type(node, path, depth, None)
        if kind == "array":
            return self.array(node, path, depth)
        if kind == "null":
            return NONE
        return self.primitives.get(kind, self.any) if isinstance(kind, str) else self.any

    def literals(self, values: list[Any]) -> str:
        """Return the type of fixed values."""
        if len(values) > MAX_LITERALS:
            return self.union(self.kind(value) for value in values)
        written, others = [], []
        for value in values:
            if value is None or isinstance(value, bool | int):
                written.append(repr(value))
            elif isinstance(value, str) and len(value) <= MAX_LITERAL_CHARS:
                written.append(_text(value) if self.module.is_shown else ascii(value))
            else:
                others.append(self.kind(value))
        fixed = [f"{self.literal}[{', '.join(dict.fromkeys(written))}]"] if written else []
        return self.union([*fixed, *others])

    def kind(self, value: object) -> str:
        """Return the type of a value."""
        if value is None:
            return NONE
        names = {str: "string", bool: "boolean", int: "integer", float: "number"}
        return self.primitives.get(names.get(type(value), ""), self.any)

    def array(self, node: dict[str, Any], path: tuple[str, ...], depth: int) -> str:
        """Return the type of a list. One of numbers is a sequence, since a list of int is not a list of float."""
        items = node.get("items")
        first = node.get("prefixItems", items)
        if isinstance(first, list) and first:
            rest = items if items is not first else node.get("additionalItems")
            inner = self.union(
                self.type(item, (*path, "item"), depth + 1)
                for item in ([*first, rest] if isinstance(rest, dict) else first)
            )
        else:
            inner = self.type(items, (*path, "item"), depth + 1)
        number, text = self.primitives["number"], self.primitives["string"]
        has_number, has_text = _mentions(inner, number), _mentions(inner, text)
        return f"{self.sequence if has_number and not has_text else self.list}[{inner}]"

    def record_type(
        self, node: dict[str, Any], path: tuple[str, ...], depth: int, steps: tuple[str, ...] | None
    ) -> str:
        """Return the type of an object: a record if its keys are known, else a mapping."""
        others = node.get("additionalProperties")
        if not _is_record(node):
            value = self.type(others, path, depth + 1) if isinstance(others, dict) else self.any
            outer = self.mapping if _mentions(value, self.primitives["number"]) else self.dict
            return f"{outer}[{self.primitives['string']}, {value}]"
        outside, self.uses = self.uses, {}
        fields = self.fields(node, path, depth)
        extra = self.any if node.get("patternProperties") else ""
        if others is True or isinstance(others, dict):
            extra = extra or self.type(others, (*path, "extra"), depth + 1)
        reserved = self.open.get(steps, "") if steps is not None else ""
        name = self.module.record(type_name(*path), fields, extra, self.uses, reserved)
        self.uses = {**outside, name: None}
        return name

    def fields(self, node: dict[str, Any], path: tuple[str, ...], depth: int) -> dict[str, _Field]:
        """Return the members of an object."""
        properties = node.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = node.get("required")
        needed = (
            {key_name for key_name in required if isinstance(key_name, str)}
            if isinstance(required, list)
            else set()
        )
        fields_by_name = {
            key: _Field(self.type(value, (*path, key), depth + 1), key in needed, _field_doc(value))
            for key, value in properties.items()
        }
        for key in sorted(needed - fields_by_name.keys()):
            fields_by_name[key] = _Field(self.any, is_required=True)
        return fields_by_name

    def alternatives(
        self, variants: Sequence[dict[str, Any]], path: tuple[str, ...], depth: int
    ) -> dict[str, _Field]:
        """Return the members of several alternatives together: required if they are in all of them."""
        if len(variants) > MAX_UNION:
            raise _TooLargeError
        by_name: dict[str, list[_Field]] = {}
        for variant in variants:
            for key, value in self.fields(variant, path, depth).items():
                by_name.setdefault(key, []).append(value)
        return {
            key: _Field(
                self.union(variant.type for variant in fields),
                len(fields) == len(variants) and all(variant.is_required for variant in fields),
                fields[0].doc,
            )
            for key, fields in by_name.items()
        }

    def union(self, parts: Iterable[str]) -> str:
        """Join types; equal ones are written once, and Any is all of them."""
        distinct = list(dict.fromkeys(parts))
        if not distinct or self.any in distinct or len(distinct) > MAX_UNION:
            return self.any
        return " | ".join(distinct)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.'\"]){re.escape(name)}(?![\w'\"])", text) is not None


def _conditional(node: dict[str, Any]) -> Iterator[object]:
    for keyword in ("then", "else"):
        if isinstance(node.get(keyword), dict):
            yield node[keyword]
    dependent = node.get("dependentSchemas")
    if isinstance(dependent, dict):
        yield from dependent.values()


def _both(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Return a schema for what both describe. Of two that differ in more than their members, the second counts."""
    merged = {**left, **right}
    properties, more = left.get("properties"), right.get("properties")
    if isinstance(properties, dict) and isinstance(more, dict):
        both = {key: _narrower(properties[key], more[key]) for key in properties.keys() & more.keys()}
        merged["properties"] = {**properties, **more, **both}
    needed, also = left.get("required"), right.get("required")
    if isinstance(needed, list) and isinstance(also, list):
        merged["required"] = [*needed, *(name for name in also if name not in needed)]
    if left.get("additionalProperties") not in (None, False) and "additionalProperties" not in right:
        merged["additionalProperties"] = left["additionalProperties"]
    return merged


def _narrower(left: object, right: object) -> object:
    """Return the schema of a member that two describe: the members of both."""
    return {**left, **right} if isinstance(left, dict) and isinstance(right, dict) else right or left


def _is_record(node: dict[str, Any]) -> bool:
    if "enum" in node or "const" in node or node.get("anyOf") or node.get("oneOf"):
        return False
    if node.get("type", "object") not in ("object", ["object"]):
        return False
    return bool(node.get("properties")) and isinstance(node["properties"], dict)


def _implied(node: dict[str, Any]) -> str | None:
    if any(word in node for word in ("properties", "patternProperties", "additionalProperties")):
        return "object"
    return "array" if "items" in node or "prefixItems" in node else None


def _is_plain(key: str) -> bool:
    return _IDENTIFIER.fullmatch(key) is not None and not iskeyword(key) and not key.startswith("__")


def _field_doc(node: object) -> str:
    about = node.get("description") if isinstance(node, dict) else None
    return _doc(about, FIELD_DOC_CHARS) if isinstance(about, str) else ""


def _doc(text: str, limit: int) -> str:
    return summarise(text.replace('"""', "'''").replace("\\", "/"), limit).rstrip('"')


def _text(value: str) -> str:
    """Return a text as a literal that is short to read."""
    plain = value.isprintable() and '"' not in value and "\\" not in value
    return f'"{value}"' if plain else ascii(value)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
