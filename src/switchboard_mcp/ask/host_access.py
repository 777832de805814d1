"""What a request may use of its host: its model, where there is no other, and its user, who must agree to some steps.

Owns which model serves, and the words a user is asked with. It knows no transport.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, Protocol

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.ask.anthropic_api import AnthropicModel
from switchboard_mcp.ask.conversation import PlanningModel
from switchboard_mcp.ask.engine import Agreement
from switchboard_mcp.ask.plan import PlanStep
from switchboard_mcp.ask.sampling import SamplingModel
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.protocol import jsonrpc

KEYS = ("ANTHROPIC_API_KEY", "CLAUDE_API_KEY")
ELICITATION = "elicitation/create"
# As much of one step as a person reads before agreeing.
ARGS_CHARS = 500
FORM = {
    "type": "object",
    "properties": {
        "agree": {"type": "boolean", "title": "Run it", "description": "Whether these steps may be run"}
    },
    "required": ["agree"],
}
Backend = Literal["auto", "api", "host"]


class AskClient(Protocol):
    """The client, as far as it can be asked something."""

    def supports(self, capability: str) -> bool:
        """Whether it said that it can."""

    async def request(self, method: str, params: bytes) -> Raw:
        """Its answer. Raises `SwitchboardError` where it gives none."""

    def notify(self, method: str, params: bytes) -> None:
        """A notification."""


class _Answer(Struct):
    action: str = ""
    content: dict[str, object] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


def find_key(environ: Mapping[str, str]) -> str:
    """The key of the API, where one is set."""
    return next((key for name in KEYS if (key := environ.get(name, "").strip())), "")


def api_model(settings: AskSettings, environ: Mapping[str, str]) -> AnthropicModel | None:
    """The API, where the settings want it and a key is set."""
    key = find_key(environ)
    return AnthropicModel(settings, key) if key and settings.backend != "host" else None


async def preload(api: AnthropicModel) -> None:
    """Load what takes long before it is needed. What goes wrong with it is told when it is."""
    with suppress(SwitchboardError):
        await api.client()


def choose_model(backend: Backend, api: AnthropicModel | None, host: AskClient | None) -> PlanningModel:
    """Who plans. Raises `ask_no_model` where nobody can, which says what to set."""
    if api is not None and backend != "host":
        return api
    if backend == "api":
        message = "There is no model to plan with: no key is set."
        raise refused(
            "ask_no_model", message, hint=f"Set {KEYS[0]} (or {KEYS[1]}) where Switchboard is started."
        )
    if host is not None and host.supports("sampling"):
        return SamplingModel(host.request)
    missing = (
        "the host does not lend its model (sampling)" if host is not None else "there is no host to lend one"
    )
    why = "ask.backend is 'host'" if backend == "host" else "no key is set"
    raise refused("ask_no_model", f"There is no model to plan with: {why}, and {missing}.")


class HostConsent:
    """Asks the host's user about grave steps, and about no others."""

    def __init__(self, child: str, host: AskClient) -> None:
        self._child = child
        self._host = host

    async def request(self, steps: Sequence[PlanStep], grave: Sequence[PlanStep]) -> Agreement:
        """Whether they may be run."""
        if not grave:
            return "yes"
        if not self._host.supports("elicitation"):
            return "nobody"
        params = {"mode": "form", "message": self._question(steps), "requestedSchema": FORM}
        try:
            answer = _decode_answer(await self._host.request(ELICITATION, jsonrpc.encode(params)))
        except (SwitchboardError, msgspec.DecodeError):
            return "nobody"
        agreed = answer.action == "accept" and (answer.content or {}).get("agree") is True
        return "yes" if agreed else "no"

    def _question(self, steps: Sequence[PlanStep]) -> str:
        lines = [f"{number}. {format_step(step)}" for number, step in enumerate(steps, 1)]
        return "\n".join([f"Run this with '{self._child}'? It may change or delete things.", *lines])


def format_step(step: PlanStep) -> str:
    """A step for a person to read."""
    args = msgspec.json.encode(step.args).decode()
    return f"{step.subtool} {args if len(args) <= ARGS_CHARS else args[:ARGS_CHARS] + '…'}"
