"""The verdict on a program before it runs: errors, warnings, and its manifest.

Joins what the helper found in the source (`manifest`, `hints`) and the messages of the type checker with what only the
gateway knows: the tools, their schemas, and which of them read. Nothing of a program has run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from switchboard_mcp.programs.checking import diagnostics, literals
from switchboard_mcp.programs.checking.names import MODULE_SUFFIX
from switchboard_mcp.programs.checking.stubs import StubModule
from switchboard_mcp.programs.engine import CheckReport, Diagnostic
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.suites.summary import summarise

MAX_ERRORS = 10
MAX_WARNINGS = 5
SOURCE_CHARS = 120
MESSAGE_CHARS = 300
MAX_PARAMETERS = 30
MAX_NAMES = 10
# About the arguments of a call: the valid ones are listed.
ABOUT_ARGUMENTS = frozenset(
    {"unknown-argument", "missing-argument", "too-many-positional-arguments", "invalid-argument-type"}
)
# About the values of arguments: the schema says more.
ABOUT_VALUES = frozenset({"invalid-argument-type", "missing-typed-dict-key", "invalid-key"})
MAX_CALL_LINES = 200
_FUNCTION = re.compile(r"function `(\w+)`")
_NO_KEYWORD = re.compile(r"Argument `(\w+)`")
_RECORD = re.compile(r"Object of type `([A-Za-z_]\w*)` has no attribute `(\w+)`")
_UNKNOWN_NAME = re.compile(r"Name `(\w+)`")
_UNKNOWN_KEY = re.compile(r"Unknown key .* for TypedDict `(\w+)`")
_COROUTINE = re.compile(r"CoroutineType\[|is not awaited")
_NO_MEMBER = re.compile(r"Module `(\w+)` has no member")


class ProgramProblem(Struct, frozen=True):
    """One error or warning, with the line of the source that it is about."""

    line: int
    message: str
    source: str = ""
    code: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" + (f"\n    {self.source}" if self.source else "")


class ManifestEntry(Struct, frozen=True):
    """A subtool that a program can call."""

    suite: str
    subtool: str
    module: str
    function: str
    is_read: bool


class Verdict(Struct, frozen=True):
    """The verdict on a program. It may run if there are no errors."""

    errors: tuple[ProgramProblem, ...] = ()
    warnings: tuple[ProgramProblem, ...] = ()
    manifest: tuple[ManifestEntry, ...] = ()
    left_out: int = 0

    @property
    def is_accepted(self) -> bool:
        """True if the program may run."""
        return not self.errors

    @property
    def writes(self) -> tuple[ManifestEntry, ...]:
        """The subtools that may change something."""
        return tuple(entry for entry in self.manifest if not entry.is_read)

    def text(self) -> str:
        """Return errors and warnings as a model reads them."""
        lines = [str(problem) for problem in self.errors]
        if self.left_out:
            lines.append(f"… and {self.left_out} more")
        return "\n".join([*lines, *(f"warning: {problem}" for problem in self.warnings)])


def verdict(
    report: CheckReport, code: str, modules: Iterable[StubModule], others: Iterable[str] = ()
) -> Verdict:
    """Return the verdict. `modules` are those that were checked; `others` the names of all that can be imported."""
    by_name = {module.name: module for module in modules}
    return _Judge(report, code, by_name, frozenset({*by_name, *others})).verdict()


class _Judge:
    def __init__(
        self,
        report: CheckReport,
        code: str,
        modules: Mapping[str, StubModule],
        names: frozenset[str],
    ) -> None:
        self._report = report
        self._lines = code.split("\n")
        self._modules = modules
        self._names = names
        self._errors: dict[tuple[int, str], ProgramProblem] = {}
        self._warnings: dict[tuple[int, str], ProgramProblem] = {}
        self._settled: set[int] = set()  # lines that have a better message than the checker's
        self._settled_calls: set[int] = set()  # lines of calls that have one about their arguments

    def verdict(self) -> Verdict:
        report = self._report
        if report.failure is not None:
            self._error(report.failure.line, report.failure.kind, report.failure.message)
        analysis = report.analysis
        for finding in _findings(analysis, "refusals"):
            self._refusal(finding)
        for finding in _findings(analysis, "hints"):
            self._error(finding["line"], str(finding["code"]), str(finding["message"]))
            self._settled.add(finding["line"])
        if report.syntax_error is not None and not self._errors:
            self._error(report.syntax_error.line, "invalid-syntax", report.syntax_error.message)
        for literal in self._literals(analysis):
            self._error(*literal)
        allowed = {tuple(row) for row in _rows(analysis, "allowed")}
        is_parsed = not any(error.code == "invalid-syntax" for error in self._errors.values())
        for diagnostic in report.diagnostics if is_parsed else ():
            if (diagnostic.line, diagnostic.code) not in allowed:
                self._diagnostic(diagnostic)
        errors = sorted(self._errors.values(), key=lambda error: error.line)
        warnings = sorted(self._warnings.values(), key=lambda warning: warning.line)
        return Verdict(
            tuple(errors[:MAX_ERRORS]),
            tuple(warnings[:MAX_WARNINGS]),
            tuple(self._manifest(analysis)),
            max(0, len(errors) - MAX_ERRORS),
        )

    # --- what the helper found in the source ---

    def _refusal(self, refusal: Mapping[str, Any]) -> None:
        line, code = refusal["line"], str(refusal["code"])
        message = str(refusal["message"])
        module, name = refusal.get("module"), refusal.get("name")
        if isinstance(module, str) and isinstance(name, str):
            functions = self._modules[module].names if module in self._modules else ()
            message += _suggestion(name, functions, f"`{module}` has")
        elif isinstance(module, str) and message.endswith(f"`{module}`."):
            message += _suggestion(module, sorted(self._names), "There are")
        self._error(line, code, message)
        self._settled.add(line)

    def _literals(self, analysis: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
        for finding in _findings(analysis, "literals"):
            module = self._modules.get(str(finding.get("module")))
            function = module.functions.get(str(finding.get("function"))) if module is not None else None
            arguments = finding.get("arguments")
            if function is None or not isinstance(arguments, dict):
                continue
            values = {
                function.parameters[name]: value
                for name, value in arguments.items()
                if name in function.parameters
            }
            for mistake in literals.mistakes(function.tool.input_schema, values):
                yield (
                    finding["line"],
                    "invalid-argument",
                    f"{function.name}: {summarise(str(mistake), MESSAGE_CHARS)}.",
                )
                end = finding.get("end")
                last = (
                    end
                    if isinstance(end, int) and end - finding["line"] < MAX_CALL_LINES
                    else finding["line"]
                )
                self._settled_calls.update(range(finding["line"], last + 1))

    def _manifest(self, analysis: Mapping[str, Any]) -> Iterator[ManifestEntry]:
        for call in _rows(analysis, "calls"):
            module = self._modules.get(call[0])
            function = module.functions.get(call[1]) if module is not None else None
            if module is not None and function is not None:
                tool = function.tool
                yield ManifestEntry(module.suite, tool.name, module.name, function.name, tool.is_read)

    # --- messages of the type checker ---

    def _diagnostic(self, diagnostic: Diagnostic) -> None:
        line = self._line(diagnostic.line)
        weight = diagnostics.weight(diagnostic, line)
        if weight == "none" or (diagnostic.line in self._settled and diagnostic.code not in ABOUT_ARGUMENTS):
            return
        if diagnostic.line in self._settled_calls and diagnostic.code in ABOUT_VALUES:
            return
        message = self._explained(diagnostic)
        if weight == "error":
            self._error(diagnostic.line, diagnostic.code, message)
        else:
            problem = self._problem(diagnostic.line, diagnostic.code, message)
            self._warnings.setdefault((diagnostic.line, diagnostic.code), problem)

    def _explained(self, diagnostic: Diagnostic) -> str:
        """Return a message with what helps to correct the program."""
        message = summarise(diagnostic.message.rstrip(".?"), MESSAGE_CHARS)
        if _COROUTINE.search(diagnostic.message):
            return f"{message}. Write `await` before the call."
        record = _RECORD.search(diagnostic.message)
        if (
            diagnostic.code == "unresolved-attribute"
            and record is not None
            and record[1] not in ("str", "int", "float")
        ):
            return f'{message}. A result is a dict: write `["{record[2]}"]`, or `.get("{record[2]}")`.'
        if diagnostic.code == "unresolved-reference":
            name = _UNKNOWN_NAME.search(diagnostic.message)
            if name is not None and name[1] in self._names:
                return f"{message}. Write `import {name[1]}` first."
        member = _NO_MEMBER.search(diagnostic.message)
        if member is not None and f"{member[1]}{MODULE_SUFFIX}" in self._names:
            return f"{message}. The suite is `{member[1]}{MODULE_SUFFIX}`: import that."
        key = _UNKNOWN_KEY.search(diagnostic.message)
        if key is not None:
            return f"{message}.{self._keys(key[1])}"
        if diagnostic.code in ABOUT_ARGUMENTS:
            return f"{message}.{self._parameters(diagnostic)}"
        return f"{message}."

    def _parameters(self, diagnostic: Diagnostic) -> str:
        """Return the nearest parameter and the valid ones of the function that a message is about."""
        named = _FUNCTION.search(diagnostic.message)
        if named is None:
            return ""
        functions = [
            module.functions[named[1]] for module in self._modules.values() if named[1] in module.functions
        ]
        if len(functions) != 1 or not functions[0].parameters:
            return ""
        function = functions[0]
        wrong = _NO_KEYWORD.search(diagnostic.message)
        close = nearest(wrong[1], function.parameters, 1) if wrong is not None else []
        guess = f" Did you mean `{close[0]}`?" if close else ""
        listed = [f"{name}*" if name in function.required else name for name in function.parameters]
        more = ", …" if len(listed) > MAX_PARAMETERS else ""
        return f"{guess} Parameters (* = required): {', '.join(islice(listed, MAX_PARAMETERS))}{more}."

    def _keys(self, record: str) -> str:
        """Return the keys of a record."""
        for module in self._modules.values():
            if record in module.records:
                keys = module.records[record].keys
                more = ", …" if len(keys) > MAX_PARAMETERS else ""
                shown = [key if key.isidentifier() else ascii(key) for key in keys[:MAX_PARAMETERS]]
                return f" Keys: {', '.join(shown)}{more}."
        return ""

    # --- problems ---

    def _error(self, line: int, code: str, message: str) -> None:
        self._errors.setdefault((line, message), self._problem(line, code, message))

    def _problem(self, line: int, code: str, message: str) -> ProgramProblem:
        return ProgramProblem(line, message, summarise(self._line(line).strip(), SOURCE_CHARS), code)

    def _line(self, number: int) -> str:
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""


def _findings(analysis: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the findings of the helper that have a place. The helper is not trusted to send any."""
    findings = analysis.get(key)
    for finding in findings if isinstance(findings, list) else ():
        if isinstance(finding, dict) and isinstance(finding.get("line"), int):
            yield finding


def _rows(analysis: Mapping[str, Any], key: str) -> Iterator[list[Any]]:
    """Yield the pairs of a member of the analysis."""
    rows = analysis.get(key)
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list) and len(row) == 2 and all(isinstance(part, str | int) for part in row):
            yield row


def _suggestion(name: str, names: Sequence[str], there: str) -> str:
    """Return the nearest names, or else the first ones."""
    close = nearest(name, names)
    if close:
        return f" Did you mean {_quoted(close)}?"
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f" {there} {_quoted(names[:MAX_NAMES])}{more}."


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
