"""Types of results that no server declares, learned from the results themselves.

Kept per child and subtool beside its entry of the catalog: shapes, never values. A type that was seen once or twice is
a hint: it is shown, but refuses nothing. Later, a result of another kind than all before it is an exception for the
program, which has been checked against the earlier type; it widens the type all the same, so the next program knows of
it. In governed mode the locked type counts, until another is accepted. Learned from the results of programs and from a
sample of those that hosts get; nothing is learned and no result is decoded unless programs are enabled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.catalog import Catalog, Tool
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import shell_word
from switchboard_mcp.programs.engine import Settled
from switchboard_mcp.programs.result_values import settle_result
from switchboard_mcp.programs.shapes import (
    Shape,
    bounded,
    difference,
    from_schema,
    merge,
    shape_of,
    to_schema,
)
from switchboard_mcp.suites.signature import WRAPPER, result_type
from switchboard_mcp.system import work_thread

TEXT_CHARS = 300
# After so many texts, a tool that answered with JSON before is one that answers with both.
MIXED_TEXTS = 3
# Results from which on a type refuses programs and results. With fewer, one odd result is half of what is known.
FIRM_RESULTS = 3
# Results that hosts get: the first ones of a subtool are looked at, then one of many, in a thread, a few at once.
FIRST_SAMPLES, SAMPLE_EVERY = 20, 50
MAX_SAMPLE_BYTES = 1024 * 1024
MAX_SAMPLES_AT_ONCE = 8
# Counts at which an unchanged type is written again, so that a file is not written at every call.
WRITTEN_AT = frozenset({1, 2, 3, 5, 10, 30, 100, 300, 1_000, 3_000, 10_000})
MAX_SUBTOOLS = 2_000
FORMAT = 1
IN_LOCK = "in the lock"


class LearnedResult(Struct, omit_defaults=True):
    """Results of one subtool: the shape of those in JSON, their number, and the number of texts."""

    shape: Shape = msgspec.field(default_factory=Shape)
    results: int = 0
    texts: int = 0
    is_mixed: bool = False

    @property
    def seen(self) -> int:
        """The number of results that the type is learned from."""
        return self.results or self.texts

    @property
    def is_firm(self) -> bool:
        """True if enough results were seen to rely on the type."""
        return self.seen >= FIRM_RESULTS

    @property
    def may_be_text(self) -> bool:
        """True if texts were seen too often to be exceptions."""
        return self.is_mixed or self.texts >= MIXED_TEXTS

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a result; empty if nothing is known."""
        if self.is_mixed:
            return {}
        return to_schema(self.shape) if self.results else {"type": "string"} if self.texts else {}


class LockedResults(Protocol):
    """The result types in the lock: `children.locking.pinning.Pins`."""

    def result_schema(self, child: str, subtool: str) -> object:
        """Return the locked type of a subtool's result, or None if it has none or is not enforced."""


class _Kept(Struct, omit_defaults=True):
    """The file of one child."""

    format: int = FORMAT
    subtools: dict[str, LearnedResult] = {}


class _Observation(Struct, frozen=True):
    """One result: its shape, or None for a text, and its difference from the type."""

    shape: Shape | None
    difference: str = ""


class _Content(Struct):
    content: Raw | UnsetType = UNSET


class _Wrapped(Struct, forbid_unknown_fields=True):
    result: Raw


_decode_content = msgspec.json.Decoder(_Content).decode
_decode_kept = msgspec.json.Decoder(_Kept).decode
_decode_wrapped = msgspec.json.Decoder(_Wrapped).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class LearnedTypes:
    """Learns, keeps and checks the types of results. Used from the event loop. `pins` is the lock, if there is one."""

    def __init__(self, catalog: Catalog, pins: LockedResults | None = None) -> None:
        self._catalog = catalog
        self._pins = pins
        self._known: dict[str, dict[str, LearnedResult]] = {}
        self.skips: dict[tuple[str, str], int] = {}  # results of hosts to skip, by child and subtool
        self._samples: dict[tuple[str, str], int] = {}
        self._sampling = 0
        self._last: dict[str, tuple[ChildSpec, dict[str, LearnedResult]]] = {}  # by child: a key takes 10 µs

    def known(self, spec: ChildSpec) -> Mapping[str, LearnedResult]:
        """Return what is learned about the subtools of a child."""
        return self._subtools(spec)

    def text(self, spec: ChildSpec, subtool: str) -> str:
        """Return the type of a subtool's result as introspection shows it; empty if it is not known."""
        learned = self._subtools(spec).get(subtool)
        shown = result_type(learned.schema) if learned is not None else ""
        if not shown or learned is None:
            return ""
        return f"{shown} (seen {'once' if learned.seen == 1 else f'{learned.seen} times'})"

    async def settle(self, spec: ChildSpec, tool: Tool, name: str, settled: Settled) -> Settled:
        """Return the outcome of a call for the program, and learn from it. `name` is that of the function.

        A result that the server wraps as it declares is unwrapped, as in its stub.
        """
        if settled.raised is not None:
            return settled
        if tool.output_schema is not UNSET:
            return _unwrapped(settled, tool.output_schema)
        return await self._learn(spec, tool.name, name, settled)

    async def _learn(self, spec: ChildSpec, subtool: str, name: str, settled: Settled) -> Settled:
        if settled.text is not None:
            return self._learn_text(spec, subtool, name, settled.text)
        learned = self._subtools(spec).get(subtool) or LearnedResult()
        against = Shape() if learned.is_mixed else learned.shape
        locked = self._locked(spec, subtool)
        if locked:
            against = from_schema(locked)
        elif learned.results < FIRM_RESULTS:
            against = Shape()
        observe = partial(_observe, settled.value, against, IN_LOCK if locked else "")
        is_small = len(settled.value) <= work_thread.LOOP_BYTES
        observation = observe() if is_small else await work_thread.run(work_thread.OWN, observe)
        if observation is None:
            return settled
        self._keep(spec, subtool, observation)
        if observation.difference:
            cure = _cure(spec) if locked else ""
            return Settled(raised="TypeError", message=f"{name}: {observation.difference}.{cure}")
        return settled

    def _learn_text(self, spec: ChildSpec, subtool: str, name: str, text: str) -> Settled:
        earlier, locked = self._subtools(spec).get(subtool), self._locked(spec, subtool)
        self._keep(spec, subtool, _Observation(None))
        if locked and difference(from_schema(locked), text):
            learned = self._subtools(spec).get(subtool)
            cure = _cure(spec) if learned is not None and learned.may_be_text else ""
            message = f"{name}: the result is a text, JSON {IN_LOCK}: {text[:TEXT_CHARS]}"
            return Settled(raised="RuntimeError", message=message + cure)
        if earlier is None or earlier.results < FIRM_RESULTS or earlier.is_mixed:
            return Settled(text=text)
        message = f"{name}: the result is a text, was JSON in {earlier.results} results: {text[:TEXT_CHARS]}"
        return Settled(raised="RuntimeError", message=message)

    def sample(self, spec: ChildSpec, tool: Tool, result: Raw | bytes) -> None:
        """Learn from a result that a host gets, and set how many are skipped then."""
        key = spec.name, tool.name
        if key not in self._samples:  # the first in this process
            learned = self._subtools(spec).get(tool.name)
            self._samples[key] = learned.seen if learned is not None else 0
        self._samples[key] += 1
        if self._samples[key] >= FIRST_SAMPLES:
            self.skips[key] = SAMPLE_EVERY - 1
        if tool.output_schema is not UNSET or self._sampling >= MAX_SAMPLES_AT_ONCE:
            return
        if len(memoryview(result)) > MAX_SAMPLE_BYTES:
            return
        self._sampling += 1
        body = bytes(result)

        def done(observation: _Observation | Exception | None) -> None:
            self._sampling -= 1
            if isinstance(observation, _Observation):
                self._keep(spec, tool.name, observation, is_sample=True)

        work_thread.submit(work_thread.OWN, lambda: _observe_result(body), done)

    def _locked(self, spec: ChildSpec, subtool: str) -> object:
        return self._pins.result_schema(spec.name, subtool) if self._pins is not None else None

    def _keep(
        self, spec: ChildSpec, subtool: str, observation: _Observation, *, is_sample: bool = False
    ) -> None:
        """Widen the type of a subtool, and write it if it has changed; in a thread for a sample."""
        subtools = self._subtools(spec)
        before = subtools.get(subtool) or LearnedResult()
        if subtool not in subtools and len(subtools) >= MAX_SUBTOOLS:
            return
        after = _widened(before, observation)
        subtools[subtool] = after
        count = after.results + after.texts
        if count in WRITTEN_AT or after.schema != before.schema:
            store = partial(self._catalog.store_learned, spec, msgspec.json.encode(_Kept(subtools=subtools)))
            if is_sample:
                work_thread.submit(work_thread.OWN, store, _ignore)
            else:
                store()

    def _subtools(self, spec: ChildSpec) -> dict[str, LearnedResult]:
        last = self._last.get(spec.name)
        if last is not None and last[0] is spec:
            return last[1]
        key = self._catalog.key_of(spec)
        if key not in self._known:
            self._known[key] = _read(self._catalog.learned(spec))
        self._last[spec.name] = spec, self._known[key]
        return self._known[key]


def _cure(spec: ChildSpec) -> str:
    return f" Review it, then run `switchboard lock --accept {shell_word(spec.name)}`."


def _read(data: bytes) -> dict[str, LearnedResult]:
    try:
        kept = _decode_kept(data) if data else _Kept()
    except _UNREADABLE:
        return {}
    return kept.subtools if kept.format == FORMAT else {}


def _observe(value: bytes, against: Shape, source: str) -> _Observation | None:
    """Return the shape of a result and its difference; None if it cannot be decoded."""
    try:
        decoded = msgspec.json.decode(value)
    except _UNREADABLE:
        return None
    return _Observation(shape_of(decoded), difference(against, decoded, source))


def _observe_result(body: bytes) -> _Observation | None:
    """Return what a whole tool result shows; None for an error, a task, or a request for input."""
    try:
        if _decode_content(body).content is UNSET:
            return None
    except _UNREADABLE:
        return None
    settled = settle_result(body)
    if settled.raised is not None:
        return None
    return _Observation(None) if settled.text is not None else _observe(settled.value, Shape(), "")


def _ignore(outcome: object) -> None:
    """Leave out a write that failed: the type is learned again."""


def _widened(learned: LearnedResult, observation: _Observation) -> LearnedResult:
    if observation.shape is None:
        texts = learned.texts + 1
        is_mixed = learned.is_mixed or (learned.results > 0 and texts >= MIXED_TEXTS)
        return LearnedResult(learned.shape, learned.results, texts, is_mixed)
    shape = bounded(merge(learned.shape, observation.shape)) if learned.results else observation.shape
    # A tool that reads files may answer with a text that happens to be JSON.
    is_mixed = learned.is_mixed or (learned.results == 0 and learned.texts > 0)
    return LearnedResult(shape, learned.results + 1, learned.texts, is_mixed)


def _unwrapped(settled: Settled, schema: Raw | UnsetType) -> Settled:
    """Return a value without the sole member that FastMCP wraps it in."""
    if settled.text is not None or schema is UNSET or not _is_wrapper(bytes(schema)):
        return settled
    try:
        return Settled(value=bytes(_decode_wrapped(settled.value).result))
    except _UNREADABLE:
        return settled


@lru_cache(maxsize=256)
def _is_wrapper(schema: bytes) -> bool:
    """Return True if a schema has the sole property that `signature.unwrapped` leaves out."""
    try:
        properties = msgspec.json.decode(schema).get("properties")
    except (AttributeError, *_UNREADABLE):
        return False
    return (
        isinstance(properties, dict)
        and list(properties) == [WRAPPER]
        and isinstance(properties[WRAPPER], dict)
    )
