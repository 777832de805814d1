"""Plans with the host's own model, through sampling. The plan is JSON in plain text, which every host can transport.

The request goes to our client, which is Switchboard; its gateway forwards it in the way the host's protocol version
requires. Sampling does not report tokens, so they are estimated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct, field

from switchboard_mcp.ask import prompt
from switchboard_mcp.ask.conversation import (
    REPLY_TOKENS,
    CannotAskError,
    Correction,
    Feedback,
    InitialPrompt,
    ModelReply,
    Usage,
)
from switchboard_mcp.ask.plan import ModelTurn, Offered, PlanStep
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.suites.schema_compaction import compact
from switchboard_mcp.suites.token_estimate import estimate

SAMPLING = "sampling/createMessage"
# Planning one request needs a fast model more than a clever one.
PREFERENCES = {"speedPriority": 0.9, "costPriority": 0.7, "intelligencePriority": 0.3}
INSTRUCTIONS = """\
- Answer with one JSON object and nothing else:
  {"subtool": NAME, "args": {…}}  when this call fulfils the request, or {"steps": [the same, …]} for several;
  {"steps": […], "later": [NAME, …]}  when you must see their results first: name all subtools you may need after them;
  {"done": true, "message": TEXT}  when, after results, nothing is left to call;
  {"cannot": WHY}  when no subtool here can do it;  {"unclear": QUESTION}  when it could mean several things.

The subtools, one a line, with the JSON Schema of their args:
"""

ONLY = "Do not describe: answer with one JSON object and nothing else."

# Sends a request to our client and returns its result. Raises `SwitchboardError` if there is none.
Ask = Callable[[str, bytes], Awaitable[Raw]]


class _Content(Struct):
    type: str = ""
    text: str = ""


class _Answer(Struct):
    content: _Content | list[_Content]
    model: str = ""


_decode_answer = msgspec.json.Decoder(_Answer).decode


class _WrittenTurn(ModelTurn, frozen=True, kw_only=True):
    """A turn, or one step alone: `{"subtool": NAME, "args": {…}}`."""

    subtool: str = ""
    args: dict[str, object] = field(default_factory=dict)


_decode_turn = msgspec.json.Decoder(_WrittenTurn).decode


class SamplingModel:
    """The host's model as the planning model."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def start(self, initial: InitialPrompt) -> SamplingConversation:
        """Start a conversation about one request."""
        lines = "\n".join(_line(tool) for tool in initial.offered)
        system = prompt.system(initial.child, initial.role, INSTRUCTIONS + lines)
        return SamplingConversation(self._ask, system, initial.request)


class SamplingConversation:
    """A conversation over sampling requests."""

    def __init__(self, ask: Ask, system: str, request: str) -> None:
        self._ask = ask
        self._system = system
        self._messages = [_message("user", request)]

    async def begin(self, max_tokens: int) -> ModelReply:
        """Request the first turn."""
        return await self._turn(max_tokens)

    async def resume(self, feedback: Feedback, max_tokens: int) -> ModelReply:
        """Request the next turn."""
        text = (
            prompt.correction(feedback.problems)
            if isinstance(feedback, Correction)
            else "\n\n".join(feedback.texts)
        )
        self._messages.append(_message("user", text))
        return await self._turn(max_tokens)

    async def _turn(self, max_tokens: int) -> ModelReply:
        params = jsonrpc.encode(
            {
                "systemPrompt": self._system,
                "messages": self._messages,
                "maxTokens": min(REPLY_TOKENS, max_tokens),
                "modelPreferences": PREFERENCES,
            }
        )
        try:
            raw = await self._ask(SAMPLING, params)
        except CannotAskError as problem:
            message = f"No model is available: {problem.failure.message}"
            raise refused("ask_no_model", message) from None
        except SwitchboardError as problem:
            message = f"The host did not lend its model: {problem.failure.message}"
            raise refused("ask_model_failed", message) from None
        try:
            answer = _decode_answer(raw)
        except msgspec.DecodeError as problem:
            message = f"The response of the host's model is invalid: {problem}."
            raise refused("ask_model_failed", message) from None
        blocks = answer.content if isinstance(answer.content, list) else [answer.content]
        text = "".join(block.text for block in blocks if block.type == "text")
        self._messages.append(_message("assistant", text or "(nothing)"))
        usage = Usage(read=estimate(params), written=estimate(text))
        return ModelReply(read_turn(text), usage, answer.model or "host")


def read_turn(text: str) -> ModelTurn:
    """Parse the JSON object in a model's text, ignoring what is around it."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        return ModelTurn(odd=f"That is not a plan. {ONLY}")
    try:
        written = _decode_turn(text[begin : end + 1])
    except (msgspec.DecodeError, RecursionError) as problem:
        return ModelTurn(odd=f"That is not a plan: {problem}. {ONLY}")
    alone = [PlanStep(written.subtool, written.args)] if written.subtool else []
    return ModelTurn(  # `odd` is not for the model to set
        steps=[*alone, *written.steps],
        done=written.done,
        later=written.later,
        message=written.message,
        cannot=written.cannot,
        unclear=written.unclear,
    )


def _line(tool: Offered) -> str:
    line = {"subtool": tool.name, "does": tool.description, "args": compact(tool.schema)}
    return msgspec.json.encode(line).decode()


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "content": {"type": "text", "text": text}}
