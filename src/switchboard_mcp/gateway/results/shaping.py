"""Shapes the results of one suite: what is selected, compact or too long is answered as such, the rest as it came.

A result passes here after middleware, cache and audit, which see the whole of it. Work on large results is done
outside of the event loop.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw, Struct, structs
from msgspec.json import decode, encode

from switchboard_mcp.config.results import ResultSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.incoming import refuse_call
from switchboard_mcp.gateway.results.handles import HandleEntry, HandleStore, new_handle
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.suites.results.answers import (
    KeptResult,
    compact,
    count_tokens,
    head_of,
    is_json,
    lines_with,
    page_of,
    read_result,
    shape_line,
    text_answer,
)
from switchboard_mcp.suites.results.select import SelectError, compile_select
from switchboard_mcp.suites.suite_arguments import SuiteCall
from switchboard_mcp.suites.token_estimate import estimate
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams

# Shortening must be worth a second request.
LEAST_SAVED_TOKENS = 500
# Enough for some twenty lines; a search that needs more can be made again with other words.
FIND_TOKENS = 500
# Codex cuts texts above about 10 KB in the middle, so it gets less.
SMALLER_LIMITS = {"codex": (2_500, 8_000)}


class Shaped(Struct, frozen=True):
    """An answer, and the whole result if it must be kept."""

    body: bytes
    kept: KeptResult | None = None


class ResultShaper:
    """Shapes the results of one suite."""

    def __init__(self, settings: ResultSettings, suite: str, loop: AbstractEventLoop) -> None:
        self._settings = settings
        self._suite = suite
        self._store = HandleStore(loop, settings.keep_ms / 1000)

    def deliver(
        self, call: SuiteCall, session: Session, client: str, body: bytes, finish: Callable[[bytes], None]
    ) -> None:
        """Call `finish` with what is to be shown of a result."""
        handle = new_handle()
        work = partial(self._shape_safely, body, call.select, handle, client)

        def done(shaped: Shaped | Exception) -> None:
            if isinstance(shaped, Exception):
                finish(body)
                return
            if shaped.kept is not None:
                self._store.put(handle, shaped.kept, session, self._suite, call.subtool, len(body))
            finish(shaped.body)

        if len(body) <= work_thread.LOOP_BYTES and not call.select:
            done(work())
        else:
            work_thread.submit(work, done)

    def _shape_safely(self, body: bytes, select: str, handle: str, client: str) -> Shaped:
        """Return what is to be shown of a result; all of it if that cannot be found out."""
        try:
            return self.shape(body, select, handle, client)
        except Exception:  # noqa: BLE001 - the host gets an answer in any case, and the whole result is always right
            return Shaped(body)

    def shape(self, body: bytes, select: str, handle: str, client: str) -> Shaped:
        """Return what is to be shown of a result."""
        kept = read_result(body)
        if kept is None:
            return Shaped(body)
        if select and not kept.is_error:  # a selection must not hide a failure
            return self._select(kept, select, handle, handle)
        text = self._compacted(kept)
        most, head_chars = SMALLER_LIMITS.get(client.partition("-")[0], (self._settings.max_tokens, 0))
        if not self._settings.max_tokens or len(text) <= most or (tokens := count_tokens(text)) <= most:
            return Shaped(_with_text(body, text) if text is not kept.text else body)
        head_tokens = min(self._settings.head_tokens, most)
        if tokens - head_tokens < LEAST_SAVED_TOKENS:
            return Shaped(body)
        return self._head(kept, text, tokens, head_tokens, head_chars, handle)

    def _compacted(self, kept: KeptResult) -> str:
        mode = self._settings.compact
        if (mode == "on" and kept.one_text) or (mode == "auto" and kept.serialised):
            return compact(kept.text)
        return kept.text

    def _head(
        self, kept: KeptResult, text: str, tokens: int, head_tokens: int, head_chars: int, handle: str
    ) -> Shaped:
        head, kept.shown = head_of(
            text, head_tokens, exact_json=is_json(text) if len(text) < 1_000_000 else False
        )
        if head_chars and len(head) > head_chars:
            head, kept.shown = head[:head_chars], min(kept.shown, head_chars)
        notice = _notice(estimate(head), tokens, handle, self._settings.keep_ms)
        return Shaped(text_answer(kept, f"{shape_line(kept.text)}{head}\n{notice}"), kept)

    def _select(self, kept: KeptResult, select: str, handle: str, fresh: str) -> Shaped:
        """Return the selected part, or why there is none, with a handle to the whole.

        If the part is too long, it is what is kept under the `fresh` handle, so that it can be read on.
        """
        ways = f'{{"action":"result","handle":"{handle}","select":"…"}} or "find":"words" or "page":1'
        try:
            value = kept.value()
        except ValueError:
            note = f"select: the result is text, not JSON; the call has run. Read it with {ways}."
            return Shaped(text_answer(kept, note), kept)
        try:
            answer = compile_select(select).apply(value)
        except SelectError as problem:
            return Shaped(text_answer(kept, f"{problem} The call has run; read on with {ways}."), kept)
        text = encode(answer).decode()
        limit = 2 * self._settings.max_tokens
        if limit and len(text) > limit and (tokens := count_tokens(text)) > limit:
            head, shown = head_of(text, self._settings.head_tokens, exact_json=True)
            notice = _notice(estimate(head), tokens, fresh, self._settings.keep_ms)
            part = KeptResult(text, [], Raw(text.encode()), {}, serialised=True, shown=shown)
            return Shaped(text_answer(kept, f"{head}\n{notice}"), part)
        return Shaped(text_answer(kept, text))

    def check_select(self, select: str) -> Failure | None:
        """Return the failure of an expression that cannot be read, before anything is called."""
        try:
            compile_select(select)
        except SelectError as problem:
            return failure("select_invalid", str(problem))
        return None

    def read(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve `action: result`: a part of a result that was shortened."""
        entry = self._store.get(params.arguments.handle, session, self._suite)
        if entry is None:
            message = f"There is no result '{params.arguments.handle[:40]}' here, or it has expired."
            refuse_call(session, channel, id, params.meta, failure("result_unknown", message))
            return

        fresh = new_handle()

        def answer(found: Shaped | Failure | Exception) -> None:
            if isinstance(found, Exception):
                found = failure("internal", "The result cannot be read.")
            if isinstance(found, Failure):
                refuse_call(session, channel, id, params.meta, found)
                return
            if found.kept is not None:
                size = len(found.kept.text)
                self._store.put(fresh, found.kept, session, self._suite, entry.subtool, size)
            body = found.body
            if message_meta.is_stateless(params.meta):
                body = message_meta.to_stateless_result(body, cacheable=False)
            channel.answer(jsonrpc.result(id, body))

        work_thread.submit(partial(self._read, entry, params, fresh), answer)

    def _read(self, entry: HandleEntry, params: PlainParams, fresh: str) -> Shaped | Failure:
        arguments = params.arguments
        most = self._settings.max_tokens or 3_000
        # The host has the other blocks and members already.
        members = {"isError": Raw(b"true")} if entry.result.is_error else {}
        kept = structs.replace(entry.result, members=members, others=[])
        if arguments.select:
            shaped = self._select(kept, arguments.select, arguments.handle, fresh)
            return Shaped(shaped.body) if shaped.kept is kept else shaped
        text = self._compacted(kept)
        if arguments.find:
            found = lines_with(text, arguments.find, FIND_TOKENS)
            return Shaped(
                text_answer(kept, found or f"No line has any of these words: {arguments.find[:200]}")
            )
        number = _number(arguments.page)
        page, pages = page_of(text, number, most, kept.shown)
        if not page:
            return failure("result_unknown", f"There is no page {number}: the result has {pages}.")
        return Shaped(text_answer(kept, f"{page}\n[Page {number} of {pages}.]"))


def _notice(shown: int, tokens: int, handle: str, keep_ms: int) -> str:
    minutes = max(keep_ms // 60_000, 1)
    return (
        f'[{shown:,} of {tokens:,} tokens shown. More: {{"action":"result","handle":"{handle}","select":"…"}} '
        f'or "find":"words" or "page":2. Kept {minutes} min.]'
    )


def _with_text(body: bytes, text: str) -> bytes:
    """Return a result whose only text block has this text; nothing else changes."""
    members = jsonrpc.decode_members(body)
    blocks = [jsonrpc.decode_members(raw) for raw in decode(members["content"], type=list[Raw])]
    for block in blocks:
        if bytes(block.get("type", b"")) == b'"text"':
            block["text"] = Raw(encode(text))
    members["content"] = Raw(encode(blocks))
    return encode(members)


def _number(page: int | str) -> int:
    text = str(page)
    return int(text) if text.isdecimal() and len(text) < 9 else 1
