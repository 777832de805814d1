"""The settings of natural-language requests. The text under a field is its description in the published JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

# The smallest and quickest of Anthropic's models today; it picks a subtool and fills in arguments.
MODEL = "claude-haiku-5-5"
SUBTOOL = "natural_language"
# How a wrapper tells Switchboard what a request has cost.
USED = "notifications/switchboard/used"


class AskSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Natural-language requests: `switchboard ask`, and children wrapped with `switchboard wrap`."""

    backend: Literal["auto", "api", "host"] = "auto"
    """Which model plans: `api` is Anthropic's, with a key; `host` is the host's own, through sampling; `auto` takes the
    API where a key is set, else the host's."""
    model: str = MODEL
    """Model of the API."""
    base_url: str = ""
    """Address of the API, if not Anthropic's own."""
    effort: Literal["", "low", "medium", "high"] = ""
    """How long the model may think, for models that know effort; what the model does by itself when empty."""
    max_steps: Annotated[int, Meta(ge=1, le=100)] = 8
    """Most subtool calls that one request may make."""
    max_tokens: Annotated[int, Meta(ge=1)] = 100_000
    """Most tokens that one request may cost, read and written, all turns of the model together."""
    timeout_ms: Annotated[int, Meta(ge=1)] = 120_000
    """How long one request may take, the model and all steps together, but for the time a person takes to agree."""
    confirm: Literal["destructive", "writes", "never"] = "destructive"
    """What a person is asked about first: `destructive` steps, which are those that do not say they are harmless; all
    that are not read-only (`writes`); or nothing (`never`)."""
    trust: dict[str, list[str]] = {}
    """Subtools that need no confirmation, by child: names, or globs such as `create_*`."""
    passthrough: bool = False
    """Show the subtools of a wrapped child beside `natural_language`, to be called as before."""


class AskUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one request has cost, as a wrapper tells it. Tokens of a host's model are estimated."""

    outcome: str = ""
    model: str = ""
    subtools: list[str] = []
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_ms: float = 0.0
    steps_ms: float = 0.0
    total_ms: float = 0.0
