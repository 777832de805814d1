"""Uses of the host by a request: its model (sampling), and its user's consent (elicitation).

Chooses the model and writes the question to the user. Not aware of transports.
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
# As much of one step as a person reads before consenting.
ARGS_CHARS = 500
FORM = {
    "type": "object",
    "properties": {
        "agree": {"type": "boolean", "title": "Run it", "description": "Allow these steps to run"}
    },
    "required": ["agree"],
}
Backend = Literal["auto", "api", "host"]


class AskClient(Protocol):
    """The client side of a connection, for requests to the host."""

    def supports(self, capability: str) -> bool:
        """Return True if the client declared this capability."""

    async def request(self, method: str, params: bytes) -> Raw:
        """Send a request and return its result. Raise `SwitchboardError` if there is none."""

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification."""


class _Answer(Struct):
    action: str = ""
    content: dict[str, object] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


def find_key(environ: Mapping[str, str]) -> str:
    """Return the API key, empty if none is set."""
    return next((key for name in KEYS if (key := environ.get(name, "").strip())), "")


def api_model(settings: AskSettings, environ: Mapping[str, str]) -> AnthropicModel | None:
    """Return the API model, or None if the settings exclude it or no key is set."""
    key = find_key(environ)
    return AnthropicModel(settings, key) if key and settings.backend != "host" else None


async def preload(api: AnthropicModel) -> None:
    """Import the library in advance. A failure is reported by the first request."""
    with suppress(SwitchboardError):
        await api.client()


def choose_model(backend: Backend, api: AnthropicModel | None, host: AskClient | None) -> PlanningModel:
    """Return the model that plans. Raise `ask_no_model`, which says what to set, if there is none."""
    if api is not None and backend != "host":
        return api
    if backend == "api":
        message = "No model is available: no API key is set."
        raise refused(
            "ask_no_model", message, hint=f"Set {KEYS[0]} (or {KEYS[1]}) in the environment of Switchboard."
        )
    if host is not None and host.supports("sampling"):
        return SamplingModel(host.request)
    missing = (
        "the host does not lend its model (sampling)" if host is not None else "there is no host to lend one"
    )
    why = "ask.backend is 'host'" if backend == "host" else "no API key is set"
    raise refused("ask_no_model", f"No model is available: {why}, and {missing}.")


class HostConsent:
    """Asks the host's user for consent to grave steps, through elicitation."""

    def __init__(self, child: str, host: AskClient) -> None:
        self._child = child
        self._host = host

    async def request(self, steps: Sequence[PlanStep], grave: Sequence[PlanStep]) -> Agreement:
        """Ask the user about the plan, if it has grave steps."""
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
    """Format a step for a person."""
    args = msgspec.json.encode(step.args).decode()
    return f"{step.subtool} {args if len(args) <= ARGS_CHARS else args[:ARGS_CHARS] + '…'}"
