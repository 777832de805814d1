"""A child over every remote transport, with the official SDK at the other end."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from switchboard_mcp.children.lifecycle import State
from switchboard_mcp.errors import Failure
from switchboard_mcp.transport.http import remote_base
from tests.cases import each_case
from tests.interaction.webchildren import (
    KINDS,
    Audience,
    Kind,
    Question,
    Transport,
    ask,
    meeting,
    shop,
    until,
)
from tests.patience import PATIENCE_S

Shop = tuple[Transport, Kind, str]


@pytest.fixture(scope="module", params=KINDS)
def served(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A server over each transport, shared by the tests here."""
    transport: Transport = request.param
    with shop(transport) as url:
        yield transport, KINDS[transport], url


def text(answer: Any) -> str:
    assert isinstance(answer, dict), answer
    return str(answer["content"][0]["text"])


async def lists_and_calls_its_tools(served: Shop, name: str) -> None:
    transport, kind, url = served
    async with meeting() as (meet, _):
        child = meet(kind, url)
        assert text(await ask(child, "add", a=1, b=2)) == "3"
        assert set(child.inventory.tools) >= {"add", "count", "wait", "grow"}
        assert child.snapshot is not None
        assert child.snapshot.protocol == ("2026-07-28" if transport == "modern" else "2025-11-25")
        assert (child.snapshot.server.name, child.snapshot.instructions) == ("shop", "Ask for bread.")


async def answers_many_calls_at_once(served: Shop, name: str) -> None:
    _, kind, url = served
    async with meeting() as (meet, _):
        child = meet(kind, url)
        answers = await asyncio.gather(*(ask(child, "add", a=number, b=0) for number in range(30)))
        assert [text(answer) for answer in answers] == [str(number) for number in range(30)]


async def reports_progress(served: Shop, name: str) -> None:
    transport, kind, url = served
    async with meeting() as (meet, _):
        question = Question(meet(kind, url), "count", {"to": 3}).ask()
        assert text(await question.answer()) == "counted"
        steps = [] if transport == "json" else ["step 0", "step 1", "step 2"]  # JSON has no way for it
        assert [report["message"] for report in question.progress] == steps


async def stops_a_cancelled_call(served: Shop, name: str) -> None:
    _, kind, url = served
    async with meeting() as (meet, _):
        child = meet(kind, url)
        question = Question(child, "wait", {"name": name}).ask()
        assert text(await ask(child, "until_begun", name=name)) == "begun"
        assert child.peer is not None
        child.peer.cancel(question, "changed our mind")
        assert text(await ask(child, "until_cancelled", name=name)) == "cancelled"


async def reports_a_change_of_its_tools(served: Shop, name: str) -> None:
    _, kind, url = served
    audience = Audience()
    async with meeting() as (meet, services), asyncio.timeout(PATIENCE_S):
        services.events = audience
        child = meet(kind, url)
        # A server of the modern era tells those who listen, which begins a moment after the start.
        while not audience.news.is_set():
            assert text(await ask(child, "grow", name=name)) == "grown"
        assert name in child.inventory.tools


async def sends_a_large_answer(served: Shop, name: str) -> None:
    _, kind, url = served
    async with meeting() as (meet, _):
        assert len(text(await ask(meet(kind, url), "large", size=3_000_000))) == 3_000_000


async def fails_a_call_whose_answer_is_too_large(served: Shop, name: str) -> None:
    _, kind, url = served
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_base, "MAX_MESSAGE_BYTES", 100_000)
        await check_answers_beyond_the_limit(kind, url, name)


async def check_answers_beyond_the_limit(kind: Kind, url: str, name: str) -> None:
    async with meeting() as (meet, _):
        child = meet(kind, url)
        waiting = Question(child, "wait", {"name": name}).ask()
        assert text(await ask(child, "until_begun", name=name)) == "begun"
        answer = await ask(child, "large", size=1_000_000)
        assert isinstance(answer, Failure)
        assert answer.code == "message_too_large"
        again = [await ask(child, "large", size=1_000_000) for _ in range(5)]  # is no reason for a quarantine
        assert [isinstance(one, Failure) and one.code for one in again] == [answer.code] * 5
        assert text(await ask(child, "add", a=1, b=2)) == "3"
        if kind == "ws":  # as one frame, whose answer it was cannot be told, and the connection is gone
            assert await waiting.answer() == answer
        else:
            assert not waiting.done.done()


async def stops_when_idle_and_starts_again(served: Shop, name: str) -> None:
    _, kind, url = served
    async with meeting() as (meet, services):
        child = meet(kind, url, idle_ms=1)
        assert text(await ask(child, "add", a=1, b=2)) == "3"
        later = itertools.count(services.loop.time() + 1)

        def has_gone() -> bool:
            child.sweep(next(later))
            return child.state is State.STOPPED

        await until(has_gone)
        assert child.peer is None
        assert text(await ask(child, "add", a=2, b=2)) == "4"


async def answers_a_call_when_it_is_closed(served: Shop, name: str) -> None:
    _, kind, url = served
    async with meeting() as (meet, _):
        child = meet(kind, url)
        question = Question(child, "wait", {"name": name}).ask()
        assert text(await ask(child, "until_begun", name=name)) == "begun"
        await child.close()
        answer = await question.answer()
        assert isinstance(answer, Failure)
        assert answer.code == "shutting_down"


CHECKS = (
    lists_and_calls_its_tools,
    answers_many_calls_at_once,
    reports_progress,
    stops_a_cancelled_call,
    reports_a_change_of_its_tools,
    sends_a_large_answer,
    fails_a_call_whose_answer_is_too_large,
    stops_when_idle_and_starts_again,
    answers_a_call_when_it_is_closed,
)


@each_case("check", CHECKS, ids=lambda check: str(check.__name__))
async def test_a_child_over_each_transport(
    served: Shop, check: Callable[[Shop, str], Awaitable[None]]
) -> None:
    await check(served, f"n{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("transport", ["streamable", "sse", "websocket"])
async def test_a_server_that_was_started_anew_is_met_anew(transport: Transport) -> None:
    async with meeting() as (meet, _):
        with shop(transport) as url:
            child = meet(KINDS[transport], url)
            assert text(await ask(child, "add", a=1, b=2)) == "3"
        with shop(transport, int(url.split(":")[2].partition("/")[0])) as again:
            assert again == url
            answer = await ask(child, "add", a=1, b=2)
            if isinstance(answer, Failure):
                # A call that comes before the end of the connection is noticed may have reached the old server.
                assert answer.retryable
                answer = await ask(child, "add", a=1, b=2)
            assert text(answer) == "3"


@pytest.mark.parametrize("transport", ["streamable", "sse", "websocket"])
async def test_a_server_that_dies_in_the_middle_of_a_call_is_told(transport: Transport) -> None:
    async with meeting() as (meet, _):
        with shop(transport) as url:
            child = meet(KINDS[transport], url)
            question = Question(child, "wait", {"name": "open"}).ask()
            assert text(await ask(child, "until_begun", name="open")) == "begun"
        answer = await question.answer()
        assert isinstance(answer, Failure)
        assert answer.code in ("child_answer_lost", "child_crashed")
        assert answer.child == "kid"


@each_case("kind", ["http", "sse", "ws"])
async def test_a_server_that_is_not_there_is_told_then_left_alone_for_a_while(kind: Kind) -> None:
    async with meeting() as (meet, _):
        child = meet(kind, f"{'ws' if kind == 'ws' else 'http'}://127.0.0.1:1/")
        problems = [await ask(child, "add", a=1, b=2) for _ in range(3)]
        codes = [problem.code for problem in problems if isinstance(problem, Failure)]
        assert codes == ["child_unreachable", "child_unreachable", "child_backoff"]
        assert child.state is State.BACKOFF
