"""Shapes the results of one suite: a selected part, the head of one that the host would cut, compact JSON if asked for.

Every other result passes unchanged.

A result passes here after middleware, cache and audit, which see the whole of it. Work on large results is done
outside of the event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, structs
from msgspec.json import decode, encode

from switchboard_mcp.config.results import ResultSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.incoming import refuse_call, suite_call
from switchboard_mcp.gateway.results.handles import HandleEntry, HandleStore, new_handle, open_store
from switchboard_mcp.gateway.results.usage_file import CountKeeper
from switchboard_mcp.hosts.traits import UNKNOWN, HostTraits, traits_of
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
from switchboard_mcp.suites.results.counts import REQUEST_TOKENS
from switchboard_mcp.suites.results.select import SelectError, compile_select
from switchboard_mcp.suites.results.tables import to_tables
from switchboard_mcp.suites.suite_arguments import RESULT_SUBTOOL, SuiteCall
from switchboard_mcp.suites.token_estimate import estimate
from switchboard_mcp.system import work_thread
from switchboard_mcp.system.work_thread import checkpoint

if TYPE_CHECKING:
    from switchboard_mcp.children.child import Child
    from switchboard_mcp.gateway.client_requests.client_request import ClientRequests
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams

# The length of a page where `results.maxTokens` says nothing, and half of that of a selected part.
PAGE_TOKENS = 3_000
# Shortening must be worth a second request.
LEAST_SAVED_TOKENS = 500
# Enough for some twenty lines; a search that needs more can be made again with other words.
FIND_TOKENS = 500
# A table must be this much smaller than compact JSON: models know JSON better.
TABLE_SHARE = 0.85
# A model that reads a result to its end gets the next one of that subtool at once, up to this size.
MAX_READ_WHOLE = 25_000
MAX_READERS = 1_000


class Shaped(Struct, frozen=True):
    """An answer, and what is to be kept: the whole result, or a selected part that is too long itself.

    `tokens` are those of the whole, if it was counted, `saved` those that do not reach the model.
    """

    body: bytes
    kept: bytes = b""
    form: str = ""
    shown: int = 0
    shown_end: int = 0
    tokens: int = 0
    saved: int = 0
    compactable: int = 0


def build_shaper(settings: ResultSettings, suite: str, child: Child, broker: ClientRequests) -> ResultShaper:
    """Return the shaper of one suite. All suites of a gateway share the store of handles."""
    keeper = CountKeeper(child.state_folder("results"), child.name, broker.loop)
    return ResultShaper(settings, suite, open_store(broker), keeper)


class ResultShaper:
    """Shapes the results of one suite."""

    def __init__(self, settings: ResultSettings, suite: str, store: HandleStore, keeper: CountKeeper) -> None:
        self._settings = settings
        self._suite = suite
        self._store = store
        self.keeper = keeper
        # By principal and subtool: tokens of the longest result that was read to its end.
        self._read_whole: OrderedDict[tuple[str, str], int] = OrderedDict()

    def deliver(
        self,
        call: SuiteCall,
        session: Session,
        client: tuple[str, str],
        body: bytes,
        finish: Callable[[bytes], None],
    ) -> None:
        """Call `finish` with the part of a result to show to this client, identified by name and version."""
        host = traits_of(*client)
        explicit = bool(call.select or call.find)
        if not explicit and not self._changes_results_of(host):
            finish(body)
            return
        handle = new_handle()
        read_whole = self._read_whole.get((session.principal, call.subtool), 0)
        work = partial(self._shape_safely, body, call, handle, host, read_whole)

        def done(shaped: Shaped | Exception) -> None:
            if isinstance(shaped, Exception):
                finish(body)
                return
            self._count(shaped, call, body)
            session.results_saved += shaped.saved
            if shaped.kept:
                self._keep(shaped, handle, session, call.subtool)
            finish(shaped.body)

        if len(body) <= work_thread.LOOP_BYTES and not explicit:
            done(work())
        else:
            work_thread.submit(session, work, done)

    def _changes_results_of(self, host: HostTraits) -> bool:
        """Return whether a result may reach this host changed without its asking."""
        settings = self._settings
        if host is UNKNOWN and settings.hosts == "known":
            return False
        return settings.compact != "off" or bool(
            host.cut_chars if settings.max_tokens is None else settings.max_tokens
        )

    def _keep(self, shaped: Shaped, handle: str, session: Session, subtool: str) -> None:
        entry = HandleEntry(
            handle=handle,
            session=session,
            suite=self._suite,
            subtool=subtool,
            form=shaped.form,
            shown=shaped.shown,
            shown_end=shaped.shown_end,
            tokens=shaped.tokens,
            size=len(shaped.kept),
            body=shaped.kept,
        )
        self._store.put(entry, self._settings.keep_ms / 1000)

    def _count(self, shaped: Shaped, call: SuiteCall, body: bytes) -> None:
        counts = self.keeper.counts
        counts.seen += 1
        counts.compactable += shaped.compactable
        if shaped.compactable or shaped.body is not body:
            self.keeper.changed()
        if shaped.body is body:
            return
        counts.changed += 1
        counts.saved += shaped.saved
        counts.tokens += shaped.tokens
        if call.select or call.find:
            counts.selected += 1
        elif shaped.kept:
            counts.shortened += 1

    def _shape_safely(
        self, body: bytes, call: SuiteCall, handle: str, host: HostTraits, read_whole: int
    ) -> Shaped:
        """Return the part of a result to show; all of it if shaping fails."""
        try:
            return self.shape(body, call, handle, host, read_whole)
        except Exception:  # noqa: BLE001 - the host gets an answer in any case, and the whole result is always right
            return Shaped(body)

    def shape(
        self, body: bytes, call: SuiteCall, handle: str, host: HostTraits, read_whole: int = 0
    ) -> Shaped:
        """Return what is to be shown of a result.

        `read_whole` is the size up to which results of this subtool were read to the end, so are not shortened.
        """
        kept = read_result(body)
        if kept is None:
            return Shaped(body)
        if call.select and not kept.is_error:  # a selection must not hide a failure
            return self._select(body, kept, call.select, handle, handle, host)
        if call.find and not kept.is_error:
            return self._find(body, kept, call.find, handle)
        form, text = self._form(kept)
        if self._settings.max_tokens is None:
            most, too_long = 0, host.cuts(_text_shown(kept, text, host))
        else:
            most = self._limit(host, read_whole)
            too_long = bool(most) and len(text) > most
        tokens = count_tokens(text) if too_long else 0
        head_tokens = min(self._settings.head_tokens, most or tokens)
        if not tokens or tokens <= most or tokens - head_tokens < LEAST_SAVED_TOKENS:
            return self._whole(body, kept, form, text, host)
        exact = form != "" or (is_json(text) if len(text) < 1_000_000 else False)
        head, shown, end = head_of(text, head_tokens, exact_json=exact and not kept.is_error)
        if host.head_chars and len(head) > host.head_chars:
            head, shown, end = head[: host.head_chars], min(shown, host.head_chars), 0
        notice = self._notice(estimate(head), tokens, handle, with_select=exact)
        answer = f"{shape_line(kept.text)}{head}\n{notice}"
        saved = (count_tokens(kept.text) if form else tokens) - estimate(answer)
        return Shaped(text_answer(kept, answer), body, form, shown, end, tokens, saved)

    def _limit(self, host: HostTraits, read_whole: int) -> int:
        """Return the tokens above which a result is shortened; 0 for never."""
        most = self._settings.max_tokens
        if most is None:
            return host.result_tokens
        if most and host.result_tokens:
            return min(most, host.result_tokens)
        return max(most, read_whole) if most else 0

    @property
    def _page_tokens(self) -> int:
        """The length in tokens from which a selection counts as long; 0 for never."""
        most = self._settings.max_tokens
        return PAGE_TOKENS if most is None else most

    def _form(self, kept: KeptResult) -> tuple[str, str]:
        """Return the form in which the text is shown, and the text: only serialised JSON is ever rewritten."""
        mode = self._settings.compact
        if not ((mode == "on" and kept.one_text) or (mode == "auto" and kept.serialised)):
            return "", kept.text
        text = compact(kept.text)
        if self._settings.tables == "auto" and text.count("},{") > 1:
            table = to_tables(text)
            if table is not None and estimate(table) <= TABLE_SHARE * estimate(text):
                return "table", table
        return ("compact", text) if text != kept.text else ("", kept.text)

    def _whole(self, body: bytes, kept: KeptResult, form: str, text: str, host: HostTraits) -> Shaped:
        """Return the answer with the whole result, without the copy that some hosts would show twice."""
        # A line break and the spaces behind it are one token.
        white = kept.text.count("\n") if form else 0
        if form == "table":
            tokens = count_tokens(kept.text)
            return Shaped(text_answer(kept, text), tokens=tokens, saved=tokens - count_tokens(text))
        if self._settings.compact != "off" and host.shows == "both" and kept.repeated:
            tokens = count_tokens(kept.text)
            return Shaped(text_answer(kept, text), tokens=tokens, saved=white + tokens)
        if form and host.shows != "structured":
            return Shaped(_with_text(body, text), tokens=len(kept.text) // 4, saved=white)
        if not form and self._settings.compact == "auto" and kept.one_text and is_json(kept.text):
            return Shaped(body, compactable=kept.text.count("\n") - compact(kept.text).count("\n"))
        return Shaped(body)

    def _select(
        self, body: bytes, kept: KeptResult, select: str, handle: str, fresh: str, host: HostTraits
    ) -> Shaped:
        """Return the selected part, or why there is none, with a handle to the whole.

        If the part is too long, it is what is kept under the `fresh` handle, so that it can be read on.
        """
        tokens = count_tokens(kept.text)
        ways = f'{read_request(handle)},"select":"…"}}}} or "find":"words" or "page":1'
        try:
            value = kept.value()
        except ValueError:
            note = "select: the result is text, not JSON; the call has run."
            if tokens <= (self._page_tokens or tokens):  # less than another request would cost
                return Shaped(text_answer(kept, f"{note} All of it:\n{kept.text}"), tokens=tokens)
            note = f'{note} Read it with {read_request(handle)},"find":"words"}}}} or "page":1.'
            return Shaped(text_answer(kept, note), body, tokens=tokens, saved=tokens)
        try:
            answer = compile_select(select).apply(value, checkpoint)
        except SelectError as problem:
            note = f"{problem} The call has run; read on with {ways}."
            return Shaped(text_answer(kept, note), body, tokens=tokens, saved=tokens)
        part_body = encode({"content": [{"type": "text", "text": encode(answer).decode()}]})
        part = KeptResult(encode(answer).decode(), [], Raw(encode(answer)), serialised=True)
        form, text = self._form(part)
        limit = 2 * self._page_tokens
        if limit and len(text) > limit and (size := count_tokens(text)) > limit:
            head, shown, _ = head_of(text, self._settings.head_tokens, exact_json=True)
            notice = self._notice(estimate(head), size, fresh, with_select=True)
            shown_text = f"{head}\n{notice}"
            saved = tokens - estimate(shown_text)
            return Shaped(text_answer(kept, shown_text), part_body, form, shown, 0, tokens, saved)
        if host.objects_only and form != "table" and not isinstance(answer, dict):
            text = f'{{"result":{text}}}'
        return Shaped(text_answer(kept, text), tokens=tokens, saved=tokens - count_tokens(text))

    def _find(self, body: bytes, kept: KeptResult, words: str, handle: str) -> Shaped:
        """Return the lines of a result that contain the words, with a handle to the whole; all of it if it is short."""
        form, text = self._form(kept)
        tokens = count_tokens(text)
        if tokens <= FIND_TOKENS:
            return Shaped(body, tokens=tokens)
        lines = (
            lines_with(text, words, FIND_TOKENS, checkpoint)
            or f"No line has any of these words: {words[:200]}"
        )
        notice = self._notice(estimate(lines), tokens, handle, with_select=False, page=1)
        answer = f"{lines}\n{notice}"
        return Shaped(text_answer(kept, answer), body, form, 0, 0, tokens, tokens - estimate(answer))

    def check_select(self, select: str) -> Failure | None:
        """Return the failure for an invalid expression, before anything is called."""
        try:
            compile_select(select)
        except SelectError as problem:
            return failure("select_invalid", str(problem))
        return None

    def read(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve `action: result`: a part of a result that was shortened."""
        entry = self._store.get(params.arguments.handle, session)
        if entry is None or entry.suite != self._suite:
            message = f"There is no result '{params.arguments.handle[:40]}' here, or it has expired."
            refuse_call(session, channel, id, params.meta, failure("result_unknown", message))
            return

        fresh = new_handle()

        def answer(outcome: Shaped | Failure | Exception) -> None:
            if isinstance(outcome, Exception):
                outcome = failure("internal", "The result cannot be read.")
            if isinstance(outcome, Failure):
                refuse_call(session, channel, id, params.meta, outcome)
                return
            self.keeper.counts.reads += 1
            read_tokens = REQUEST_TOKENS + len(outcome.body) // 4
            self.keeper.counts.read_tokens += read_tokens
            session.results_saved -= read_tokens
            self.keeper.changed()
            self._note_reading(entry, params.arguments, outcome)
            if outcome.kept:
                self._keep(outcome, fresh, session, entry.subtool)
            body = outcome.body
            if message_meta.is_stateless(params.meta):
                body = message_meta.to_stateless_result(body, cacheable=False)
            session.answered_bytes += len(body)
            channel.answer(jsonrpc.result(id, body))

        request = suite_call(session, channel, id, params.meta)
        host = traits_of(request.client, request.client_version)
        work_thread.submit(session, partial(self._read, entry, params.arguments, fresh, host), answer)

    def _read(
        self, entry: HandleEntry, arguments: SuiteCall, fresh: str, host: HostTraits
    ) -> Shaped | Failure:
        body = entry.read()
        kept = read_result(body)
        if kept is None:
            raise ValueError("the result has no content")
        # The host has the other blocks and members already.
        kept = structs.replace(kept, members={"isError": Raw(b"true")} if kept.is_error else {}, others=[])
        if arguments.select:
            shaped = self._select(body, kept, arguments.select, arguments.handle, fresh, host)
            return Shaped(shaped.body) if shaped.kept is body else shaped
        text = in_form(kept.text, entry.form)
        if arguments.find:
            lines = lines_with(text, arguments.find, FIND_TOKENS, checkpoint)
            return Shaped(
                text_answer(kept, lines or f"No line has any of these words: {arguments.find[:200]}")
            )
        number = _number(arguments.page)
        most = self._limit(host, 0) or PAGE_TOKENS
        page, pages = page_of(text, number, most, entry.shown, entry.shown_end, host.head_chars)
        if not page:
            return failure("result_unknown", f"There is no page {number}: the result has {pages}.")
        end = f" Page {pages} was shown." if number == pages - 1 and entry.shown_end else ""
        return Shaped(text_answer(kept, f"{page}\n[Page {number} of {pages}.{end}]"), shown=pages)

    def _note_reading(self, entry: HandleEntry, arguments: SuiteCall, shaped: Shaped) -> None:
        """Remember a result that was read page by page to its end: the next one is not worth shortening."""
        if arguments.select or arguments.find or not shaped.shown:
            return
        entry.pages.add(_number(arguments.page))
        if entry.shown:
            entry.pages.add(1)  # seen with the answer
        if entry.shown_end:
            entry.pages.add(shaped.shown)
        if len(entry.pages) < shaped.shown:
            return
        key = (entry.session.principal, entry.subtool)
        longest = max(self._read_whole.pop(key, 0), min(entry.tokens, MAX_READ_WHOLE))
        self._read_whole[key] = longest
        if len(self._read_whole) > MAX_READERS:
            self._read_whole.popitem(last=False)

    def _notice(self, shown: int, tokens: int, handle: str, *, with_select: bool, page: int = 2) -> str:
        minutes = max(self._settings.keep_ms // 60_000, 1)
        first = '"select":"…"}} or "find":"words"' if with_select else '"find":"words"}}'
        return (
            f"[{shown:,} of {tokens:,} tokens shown. More: {read_request(handle)},{first} "
            f'or "page":{page}. Kept {minutes} min.]'
        )


def read_request(handle: str) -> str:
    """Return the beginning of the call that reads a kept result, up to its last arguments."""
    return f'{{"action":"call","subtool":"{RESULT_SUBTOOL}","args":{{"handle":"{handle}"'


def _text_shown(kept: KeptResult, text: str, host: HostTraits) -> str:
    """Return what the host shows of a whole result, as it counts against its limit."""
    if kept.structured is UNSET or host.shows not in ("structured", "both"):
        return text
    structured = compact(bytes(kept.structured).decode("utf-8", "replace"))
    return structured if host.shows == "structured" else f"{text}\n\n{structured}"


def in_form(text: str, form: str) -> str:
    """Return a text in the form in which its beginning was shown."""
    if not form:
        return text
    written = compact(text)
    return (to_tables(written) or written) if form == "table" else written


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
