"""`select`: a bounded subset of JMESPath over the JSON that a result carries.

Expressions come from a model and values from a server, so both are bounded: length and nodes of an expression, steps of
its evaluation, values of the answer. Spellings of other dialects that JMESPath would answer with an empty list are
understood. Errors name the nearest field and the shape of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from jmespath import exceptions, parser, visitor  # type: ignore[import-untyped]
from msgspec import Struct

from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.suites.results.shape import names, shape

MAX_CHARS = 200
MAX_NODES = 60
MAX_STEPS = 500_000
# Steps between two looks at the time: one step may compare a text of the whole result.
STEPS_AT_ONCE = 16
# An answer may not have more values than its source: `[@,@]|[@,@]|…` doubles them each time.
MIN_VALUES = 1_000
EXAMPLE = "items[?price > `100`].{id:id,name:name}"
FUNCTIONS = frozenset({"length", "contains", "starts_with", "ends_with", "keys"})
NODES = frozenset(
    "and_expression comparator current field filter_projection flatten function_expression identity index "
    "index_expression key_val_pair literal multi_select_dict multi_select_list not_expression or_expression pipe "
    "projection slice subexpression value_projection".split()
)
_PIECE = re.compile(
    r"'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|\"(?:\\.|[^\"\\])*\"|==|!=|<=|>=|[<>=]"
    r"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|\s+|.",
    re.DOTALL,
)
_OPERATORS = frozenset({"==", "!=", "<=", ">=", "<", ">", "="})
_WORDS = frozenset({"true", "false", "null"})


class SelectError(Exception):
    """The expression cannot be used, or matches nothing. The text says why and what to write."""


class Selector(Struct, frozen=True):
    """A checked expression."""

    text: str
    tree: dict[str, Any]
    fields: tuple[str, ...]

    def apply(self, value: object, checkpoint: Callable[[], object]) -> object:
        """Return the selected part of a value. Raises `SelectError`.

        `checkpoint` is called now and then, and may raise to end the work.
        """
        interpreter = _Interpreter(checkpoint)
        try:
            answer = interpreter.visit(self.tree, value)
            limit = max(count_values(value, MAX_STEPS), MIN_VALUES)
            too_large = count_values(answer, limit + 1) > limit
        except _TooManyStepsError:
            raise SelectError(
                f"select: stopped after {MAX_STEPS:,} steps. Take a slice first, for example items[:100]."
            ) from None
        except exceptions.JMESPathError as problem:
            reason = str(problem).partition("\n")[0]
            raise SelectError(f"select: {reason}. Shape: {shape(value)}.") from None
        except RecursionError:
            raise SelectError("select: the expression or the result is nested too deeply.") from None
        if too_large:
            raise SelectError("select: the answer is larger than the result. Select less.")
        if answer is None or answer == []:
            self._explain(value, interpreter)
        return answer

    def _explain(self, value: object, interpreter: _Interpreter) -> None:
        """Raise if nothing was selected because a name is wrong. A filter that matches nothing is a true answer."""
        members = names(value)
        for field in self.fields:
            if field not in members:
                near = nearest(field, sorted(members))
                suggestion = f' Nearest: "{near[0]}".' if near else ""
                raise SelectError(f'select: no field "{field}" here.{suggestion} Shape: {shape(value)}.')
        if interpreter.field_of_list:
            field = interpreter.field_of_list
            raise SelectError(
                f'select: "{field}" is asked of a list. Write [].{field} behind it. Shape: {shape(value)}.'
            )


class _TooManyStepsError(Exception):
    pass


class _Interpreter(visitor.TreeInterpreter):  # type: ignore[misc]  # untyped
    """Evaluates an expression within a number of steps."""

    def __init__(self, checkpoint: Callable[[], object]) -> None:
        super().__init__()
        self._checkpoint = checkpoint
        self.steps = 0
        self.field_of_list = ""

    def visit(self, node: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self.steps += 1
        if not self.steps % STEPS_AT_ONCE:
            self._checkpoint()
        if self.steps > MAX_STEPS:
            raise _TooManyStepsError
        return super().visit(node, *args, **kwargs)

    def visit_field(self, node: dict[str, Any], value: Any) -> Any:
        if isinstance(value, list):
            self.field_of_list = str(node["value"])
        return super().visit_field(node, value)


def compile_select(text: str) -> Selector:
    """Check an expression. Raises `SelectError`."""
    if len(text) > MAX_CHARS:
        raise SelectError(f"select: longer than {MAX_CHARS} characters.")
    spelled = respell(text)
    try:
        tree = parser.Parser().parse(spelled).parsed
    except exceptions.ParseError as problem:
        column = min(getattr(problem, "lex_position", 0) or 0, len(text)) + 1
        raise SelectError(f'select: cannot read "{text}" at column {column}. Example: {EXAMPLE}.') from None
    except (exceptions.JMESPathError, ValueError, RecursionError) as problem:
        reason = str(problem).partition("\n")[0]
        raise SelectError(f'select: cannot read "{text}": {reason}. Example: {EXAMPLE}.') from None
    fields: list[str] = []
    _check(tree, fields)
    return Selector(text, tree, tuple(fields))


def respell(text: str) -> str:
    """Return an expression with the spellings of other dialects replaced.

    >>> respell('$.items[?state=="open" && price > 1.5]')
    'items[?state==`"open"` && price > `1.5`]'
    """
    text = text.strip()
    if text in ("$", "."):
        return "@"
    if text.startswith(("$.", "$[")):
        text = text[1:]
    text = text.removeprefix(".")
    pieces: list[str] = []
    compared = False
    for piece in _PIECE.findall(text):
        if compared and (piece[0] == '"' or piece in _WORDS or piece[0] in "-0123456789"):
            pieces.append(_literal(piece))
        elif piece[0] == "`":
            pieces.append(_literal(piece[1:-1].replace("\\`", "`")))
        else:
            pieces.append("==" if piece == "=" else piece)
        if not piece.isspace():
            compared = piece in _OPERATORS
    return "".join(pieces)


def _literal(text: str) -> str:
    """Return JSON as JMESPath has it, between backticks."""
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        message = f"select: `{text}` is not JSON between backticks. Write a text as 'text'."
        raise SelectError(message) from None
    return "`" + text.replace("`", "\\`") + "`"


def _check(tree: dict[str, Any], fields: list[str]) -> None:
    """Raise if the tree has more or other nodes than allowed; collect the names of fields."""
    waiting, count = [tree], 0
    while waiting:
        node = waiting.pop()
        count += 1
        kind = node["type"]
        if count > MAX_NODES:
            raise SelectError(f"select: more than {MAX_NODES} parts. Select less at once.")
        if kind not in NODES or (kind == "function_expression" and node["value"] not in FUNCTIONS):
            what = f"function {node['value']}" if kind == "function_expression" else kind.replace("_", " ")
            allowed = ", ".join(sorted(FUNCTIONS))
            raise SelectError(f"select: {what} is not available here. Functions: {allowed}.")
        if kind == "field":
            fields.append(node["value"])
        waiting.extend(child for child in reversed(node["children"]) if isinstance(child, dict))


def count_values(value: object, limit: int) -> int:
    """Return the number of values in a value, counting to `limit` at most."""
    count, waiting = 0, [value]
    while waiting and count < limit:
        count += 1
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return count
