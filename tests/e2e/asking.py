"""Wrapped children and who plans for them: the same turns, said by the API's model or by the host's own.

A turn is written as the plan means it (`steps`, `done`, `later`, `cannot`, `unclear`, `message`), or is a function that
makes it from what the model was shown last.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.e2e.host import SWITCHBOARD
from tests.e2e.messages_api import Answer, Fails, MessagesApi, Says, text, use
from tests.e2e.sdk import entered
from tests.patience import PATIENCE_S

Json = dict[str, Any]
Turn = Json | Callable[[str], Json]
Mode = Literal["auto", "legacy"]
# No key of the machine's own may reach a test.
NO_KEYS = {"ANTHROPIC_API_KEY": "", "CLAUDE_API_KEY": ""}


class Planner:
    """Says turn after turn, and keeps what it was shown."""

    def __init__(self) -> None:
        self.turns: deque[Turn] = deque()
        self.shown: list[str] = []
        self.problem: AssertionError | None = None

    def next(self, shown: str) -> Json:
        self.shown.append(shown)
        assert self.turns, f"nothing is left to say to: {shown}"
        turn = self.turns.popleft()
        return turn(shown) if callable(turn) else turn

    def over_api(self, api: MessagesApi) -> None:
        """Speak as the API's model from now on."""

        def decide(request: Json) -> Answer:
            try:
                return says(self.next(_last_words(request["messages"][-1]["content"])))
            except AssertionError as problem:  # to be seen in the test, not in a thread of the service
                self.problem = problem
                return Fails(400, "invalid_request_error", "a test fails")

        api.otherwise = decide


def step(subtool: str, **args: Any) -> Json:
    return {"subtool": subtool, "args": args}


def says(turn: Json) -> Says:
    """A turn as the API's model says it."""
    blocks = [
        use(step["subtool"], step["args"], f"toolu_{place}")
        for place, step in enumerate(turn.get("steps", ()))
    ]
    message = turn.get("message", "")
    if turn.get("done"):
        blocks.append(use("plan_done", {"message": message} if message else {}))
    elif message:
        blocks.append(text(message))
    if "later" in turn:
        blocks.append(use("plan_later", {"subtools": turn["later"]}))
    if "cannot" in turn:
        blocks.append(use("plan_cannot", {"why": turn["cannot"]}))
    if "unclear" in turn:
        blocks.append(use("plan_unclear", {"question": turn["unclear"]}))
    return Says(blocks)


def written(turn: Json) -> str:
    """A turn as a host's model writes it, chatty as those are."""
    if set(turn) == {"message"}:
        return str(turn["message"])
    return f"Here is the plan:\n```json\n{json.dumps(turn)}\n```"


def _last_words(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["content"] for block in content if block["content"] != "noted")


class Lender:
    """A host that lends its model, where it has one, and whose user agrees or not."""

    client: Client

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.agrees: bool | None = True  # None closes the question without an answer
        self.questions: list[str] = []

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        content: Any = params.messages[-1].content
        turn = self.planner.next(content.text)
        block = types.TextContent(text=written(turn))
        return types.CreateMessageResult(role="assistant", content=block, model="lent")

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.questions.append(params.message)
        if self.agrees is None:
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content={"agree": self.agrees})

    async def ask(self, child: str, query: str, *turns: Turn, **more: Any) -> Json:
        """Have something done; what comes back, as plain JSON."""
        self.planner.turns = deque(turns)
        args = {"query": query, **more}
        result = await self.call(child, "natural_language", args)
        if self.planner.problem is not None:
            raise self.planner.problem
        assert not self.planner.turns, f"not said: {self.planner.turns}"
        return result

    async def call(self, child: str, subtool: str, args: Json) -> Json:
        arguments = {"action": "call", "subtool": subtool, "args": args}
        async with asyncio.timeout(PATIENCE_S):
            result = await self.client.call_tool(f"{child}_suite", arguments)
        decoded: Json = json.loads(result.model_dump_json(by_alias=True, exclude_none=True))
        return decoded


@asynccontextmanager
async def lender(
    workspace: Path, planner: Planner, mode: Mode, *, lends: bool, env: dict[str, str]
) -> AsyncIterator[Lender]:
    """The official SDK's client as the host of a Switchboard in the workspace."""
    host = Lender(planner)
    parameters = StdioServerParameters(
        command=SWITCHBOARD[0],
        args=["--log-level", "info"],
        env={**os.environ, **NO_KEYS, **env},
        cwd=workspace,
    )
    with (workspace / "stderr.log").open("a") as errors:
        host.client = Client(
            stdio_client(parameters, errlog=errors),
            mode=mode,
            sampling_callback=host.sample if lends else None,
            elicitation_callback=host.elicit,
            cache=None,
        )
        async with entered(host.client):
            yield host


def code_of(result: Json) -> str:
    """The code of the failure that a result tells."""
    assert result.get("isError"), result
    return str(result["structuredContent"]["error"]["code"])


def words_of(result: Json) -> str:
    return "\n".join(block["text"] for block in result["content"])


def plan_of(result: Json) -> list[tuple[str, bool]]:
    """The steps of the plan, and whether each was run."""
    return [(taken["subtool"], taken.get("ran", False)) for taken in result["_meta"]["switchboard/plan"]]
