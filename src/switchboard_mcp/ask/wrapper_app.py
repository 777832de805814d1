"""The MCP server of a wrapped child: one tool that takes a request in natural language.

Runs on `inprocess.mcp_server`. `host_access` chooses the model and asks for consent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from switchboard_mcp.ask.anthropic_api import AnthropicModel
from switchboard_mcp.ask.engine import AskRequest as Wanted
from switchboard_mcp.ask.engine import Participants, Toolbox, run_request
from switchboard_mcp.ask.host_access import AskClient, HostConsent, choose_model
from switchboard_mcp.ask.record import AskRecord, outcome_of
from switchboard_mcp.config.models import Expose
from switchboard_mcp.config.sections import ASK_SUBTOOL, USAGE_NOTIFICATION, AskSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.inprocess.server_app import (
    ClientIdentity,
    ClientSession,
    Resource,
    ToolRequest,
    ToolSpec,
)
from switchboard_mcp.policy.access import access
from switchboard_mcp.protocol import jsonrpc


class Query(Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of `natural_language`."""

    query: Annotated[str, Meta(min_length=1, description="What you want done, in a sentence.")]
    context: Annotated[str, Meta(description="Further context: names, paths, texts.")] = ""
    dry_run: Annotated[bool, Meta(description="Return the plan; run nothing.")] = False


class Wrapper:
    """Serves a wrapped child. `api` is the API model, if there is a key; `role` describes the child."""

    resources: Sequence[Resource] = ()

    def __init__(
        self,
        toolbox: Toolbox,
        settings: AskSettings,
        *,
        role: str = "",
        api: AnthropicModel | None = None,
    ) -> None:
        self.toolbox = toolbox
        self.settings = settings
        self.role = role
        self.api = api
        self.name = toolbox.child
        self.instructions = f"Tell `{ASK_SUBTOOL}` what you want done with '{toolbox.child}', in a sentence."
        description = (
            f"Say in a sentence what you want done with '{toolbox.child}': it finds and calls the right subtools. "
            "Returns their result unchanged."
        )
        self.tools = [
            ToolSpec(
                name=ASK_SUBTOOL, description=description, args_type=Query, handler=_serve, destructive=True
            )
        ]

    async def open_session(self, notifier: Any, client: ClientIdentity) -> WrapperSession:
        """Open a session for a client; `voice` is our own server, which can also send requests."""
        return WrapperSession(self, notifier)

    async def answer(self, query: Query, host: AskClient, request: ToolRequest) -> bytes:
        """Run one request."""
        try:
            participants = self._participants(host)
        except SwitchboardError as problem:
            record = AskRecord()
            result = record.failure_result(problem.failure)
        else:
            ask_request = Wanted(query.query, query.context, query.dry_run)
            result, record = await run_request(ask_request, participants, request.progress)
        # For log and metrics of the Switchboard in front: outcome and cost, but nothing of the content.
        host.notify(USAGE_NOTIFICATION, jsonrpc.encode(record.usage_summary(outcome_of(result))))
        return result

    def _participants(self, host: AskClient) -> Participants:
        settings, child = self.settings, self.toolbox.child
        trust = access(Expose(allow=settings.trust.get(child, [])), governed=True)
        return Participants(
            toolbox=self.toolbox,
            model=choose_model(settings.backend, self.api, host),
            consent=HostConsent(child, host),
            settings=settings,
            trusted=trust.permits,
            role=self.role,
        )


class WrapperSession(ClientSession):
    """One client of a wrapped child."""

    def __init__(self, wrapper: Wrapper, host: AskClient) -> None:
        self.wrapper = wrapper
        self.host = host


async def _serve(sitting: WrapperSession, query: Query, request: ToolRequest) -> Raw:
    return Raw(await sitting.wrapper.answer(query, sitting.host, request))
