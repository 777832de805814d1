"""Plans with Anthropic's API: the subtools are its tools, four more tools control the plan.

The official library is imported only here and on a thread, because that takes longer than everything else. Tools and
system prompt are the same for every request to a child, and are marked for caching. No tool choice is forced and no
parameter is set that some models reject; the model's own turns are sent back unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from switchboard_mcp.ask import prompt
from switchboard_mcp.ask.conversation import (
    REPLY_TOKENS,
    Correction,
    Feedback,
    InitialPrompt,
    ModelReply,
    Usage,
)
from switchboard_mcp.ask.plan import ModelTurn, Offered, PlanStep
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.suites.schema_compaction import compact
from switchboard_mcp.suites.summary import summarise
from switchboard_mcp.system.installation import install_hint

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message

# Done by the library, with exponential backoff or the delay that the service returns.
RETRIES = 3
NAME_CHARS = 64
DONE, LATER, CANNOT, UNCLEAR = "plan_done", "plan_later", "plan_cannot", "plan_unclear"
INSTRUCTIONS = f"""\
- Call {DONE} in the same turn as the calls that fulfil the request. If you must see their results first, call {LATER}
  in the same turn instead, with every subtool you may need after them.
- Call {CANNOT} when no subtool here can do it, {UNCLEAR} when the request could mean several things."""
TEXT = {"type": "string"}


def _control(name: str, description: str, **properties: object) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [], "additionalProperties": False}
    return {"name": name, "description": description, "input_schema": schema}


CONTROLS = [
    _control(DONE, "The calls of this turn, or those before, fulfil the request.", message=TEXT),
    _control(
        LATER,
        "The results of this turn's calls are needed first. Names every subtool that may be needed after them.",
        subtools={"type": "array", "items": TEXT},
    ),
    _control(CANNOT, "No subtool here can do it.", why=TEXT),
    _control(UNCLEAR, "The request could mean several things.", question=TEXT),
]


class AnthropicModel:
    """Anthropic's API as the planning model."""

    def __init__(self, settings: AskSettings, key: str) -> None:
        self._settings = settings
        self._key = key
        self._client: AsyncAnthropic | None = None
        self._opening = asyncio.Lock()

    async def client(self) -> AsyncAnthropic:
        """Return the library's client, importing the library on first use."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._load)
            return self._client

    def _load(self) -> AsyncAnthropic:
        try:
            from anthropic import AsyncAnthropic
        except ImportError as problem:
            message = f"The API requires the package '{problem.name}', which is not installed."
            raise refused("ask_no_model", message, hint=install_hint("ask")) from None
        return AsyncAnthropic(
            api_key=self._key,
            base_url=self._settings.base_url or None,
            max_retries=RETRIES,
            timeout=self._settings.timeout_ms / 1000,
        )

    def start(self, initial: InitialPrompt) -> AnthropicConversation:
        """Start a conversation about one request."""
        return AnthropicConversation(
            self, self._settings, initial, prompt.system(initial.child, initial.role, INSTRUCTIONS)
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()


class _ToolUse(Struct, frozen=True):
    """A tool use of the model: its id, and the index of its step, None for a control tool."""

    id: str
    step: int | None


class AnthropicConversation:
    """A conversation over the Messages API."""

    def __init__(
        self, model: AnthropicModel, settings: AskSettings, initial: InitialPrompt, system: str
    ) -> None:
        self._model = model
        self._settings = settings
        self._names = api_names([tool.name for tool in initial.offered])
        self._fixed: dict[str, Any] = {
            "model": settings.model,
            "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
            "tools": write_tools(initial.offered, self._names),
        }
        if settings.effort:
            self._fixed["output_config"] = {"effort": settings.effort}
        self._messages: list[Any] = [{"role": "user", "content": initial.request}]
        self._uses: list[_ToolUse] = []

    async def begin(self, max_tokens: int) -> ModelReply:
        """Request the first turn."""
        return await self._turn(max_tokens)

    async def resume(self, feedback: Feedback, max_tokens: int) -> ModelReply:
        """Request the next turn."""
        self._messages.append({"role": "user", "content": self._content_of(feedback)})
        return await self._turn(max_tokens)

    def _content_of(self, feedback: Feedback) -> str | list[dict[str, object]]:
        """Return the next user message: the API expects a result for every tool use first."""
        if isinstance(feedback, Correction):
            correction = prompt.correction(feedback.problems)
            return [_result(use.id, correction, wrong=True) for use in self._uses] or correction
        return [
            _result(use.id, "noted" if use.step is None else feedback.texts[use.step]) for use in self._uses
        ]

    async def _turn(self, max_tokens: int) -> ModelReply:
        client = await self._model.client()
        most = min(REPLY_TOKENS, max_tokens)
        try:
            async with client.messages.stream(
                max_tokens=most, messages=self._messages, **self._fixed
            ) as stream:
                message = await stream.get_final_message()
        except Exception as problem:  # noqa: BLE001 - the library may fail in any way on what a service sends
            raise SwitchboardError(as_failure(problem)) from None
        self._messages.append({"role": "assistant", "content": message.content})
        turn = self._read_turn(message)
        counted = message.usage
        usage = Usage(
            read=counted.input_tokens + (counted.cache_creation_input_tokens or 0),
            written=counted.output_tokens,
            cached=counted.cache_read_input_tokens or 0,
        )
        return ModelReply(turn, usage, message.model)

    def _read_turn(self, message: Message) -> ModelTurn:
        self._uses = []
        if message.stop_reason == "refusal":
            return ModelTurn(cannot="the model declines to plan it.")
        originals = {written: name for name, written in self._names.items()}
        steps: list[PlanStep] = []
        controls: dict[str, dict[str, object]] = {}
        texts: list[str] = []
        odd = ""
        for block in message.content:
            if block.type == "text":
                texts.append(block.text)
            if block.type != "tool_use":
                continue
            arguments: object = block.input
            args = arguments if isinstance(arguments, dict) else {}
            if not isinstance(arguments, dict):
                odd = f"The arguments of '{block.name}' are not an object."
            if block.name in (DONE, LATER, CANNOT, UNCLEAR):
                controls[block.name] = args
                self._uses.append(_ToolUse(block.id, None))
            else:
                self._uses.append(_ToolUse(block.id, len(steps)))
                steps.append(PlanStep(originals.get(block.name, block.name), args))
        if message.stop_reason == "max_tokens":
            odd = "The answer was cut off: it is too long."
        return ModelTurn(
            steps=steps,
            done=DONE in controls,
            later=_names(controls[LATER].get("subtools"), originals) if LATER in controls else None,
            message=_text(controls.get(DONE, {}), "message") or "".join(texts),
            cannot=(_text(controls[CANNOT], "why") or "no reason given.") if CANNOT in controls else "",
            unclear=(_text(controls[UNCLEAR], "question") or "no question given.")
            if UNCLEAR in controls
            else "",
            odd=odd,
        )


def api_names(names: Iterable[str]) -> dict[str, str]:
    """Return a valid, unique API name for each subtool; its own name if possible."""
    reserved: set[str] = {control["name"] for control in CONTROLS}
    written: dict[str, str] = {}
    for name in names:
        plain = "".join(
            letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name
        )
        plain = plain[:NAME_CHARS] or "_"
        count = 1
        while plain in reserved:
            count += 1
            ending = f"_{count}"
            plain = plain[: NAME_CHARS - len(ending)] + ending
        reserved.add(plain)
        written[name] = plain
    return written


def write_tools(offered: Sequence[Offered], names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the tool definitions, always in the same order, marked for caching."""
    tools = [
        {"name": names[tool.name], "description": tool.description, "input_schema": write_schema(tool.schema)}
        for tool in offered
    ]
    tools = [*CONTROLS, *tools]
    return [*tools[:-1], {**tools[-1], "cache_control": {"type": "ephemeral"}}]


def write_schema(schema: object) -> dict[str, Any]:
    """Return a schema that the API accepts: an object without top-level alternatives, which `judge` checks later."""
    small = compact(schema)
    if not isinstance(small, dict):
        return {"type": "object", "properties": {}}
    kept = {name: part for name, part in small.items() if name not in ("anyOf", "oneOf", "allOf", "$schema")}
    return {**kept, "type": "object"}


def as_failure(problem: Exception) -> Failure:
    """Convert an exception of the library to a failure. It repeats nothing of the request."""
    if isinstance(problem, SwitchboardError):
        return problem.failure
    status = getattr(problem, "status_code", None)
    kind, message = _error_body(getattr(problem, "body", None))
    detail = f" {summarise(message, 300)}" if message else ""
    if status in (401, 403):
        return failure("ask_model_rejected", f"The model's service rejects the key ({status}).{detail}")
    if status == 429:
        return failure("ask_model_failed", f"The model's service limits the request rate (429).{detail}")
    if status == 529 or kind == "overloaded_error":
        return failure("ask_model_failed", "The model's service is overloaded (529).")
    if isinstance(status, int) and 400 <= status < 500:
        return failure("ask_model_rejected", f"The model's service rejects the request ({status}).{detail}")
    if isinstance(status, int) and status >= 500:
        return failure("ask_model_failed", f"The model's service failed ({status}).{detail}")
    name = type(problem).__name__
    if name == "APITimeoutError":
        return failure("ask_model_failed", "The model's service did not answer in time.")
    if name == "APIConnectionError":
        return failure("ask_model_failed", "The model's service cannot be reached.", hint=UNREACHABLE)
    return failure("ask_model_failed", f"The response of the model's service is invalid ({name}).")


UNREACHABLE = "Check the network, and `ask.baseUrl` in the config, then try again."


def _error_body(body: object) -> tuple[str, str]:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    return _text(error, "type"), _text(error, "message")


def _result(id: str, text: str, *, wrong: bool = False) -> dict[str, object]:
    written: dict[str, object] = {"type": "tool_result", "tool_use_id": id, "content": text}
    return {**written, "is_error": True} if wrong else written


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _names(value: object, originals: dict[str, str]) -> list[str]:
    listed = value if isinstance(value, list) else []
    return [originals.get(name, name) for name in listed if isinstance(name, str)]
