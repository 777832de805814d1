"""Questions that no host can ask: answered with `switchboard approvals`.

Each is a file in the user's state folder, outside of every workspace; so is its answer, which is signed with a key of
the user, so that a tool that only writes files cannot answer. While any is open, the folder is looked at twice a
second.
"""

from __future__ import annotations

import hmac
import os
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.gateway.gate.questions import Question
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.processes import is_running
from switchboard_mcp.system.user_folders import state_folder
from switchboard_mcp.system.user_key import user_key

LOOK_S = 0.5
MAX_OPEN = 256
# One client that makes calls without end must leave room for the questions of others.
MAX_OPEN_OF_ONE = 32
# A question has at most a million characters, its code as many.
MAX_FILE_BYTES = 16 * 1024 * 1024
KEY_FILE = "state.key"


class StoredQuestion(Question, frozen=True, kw_only=True, rename="camel"):
    """A question as stored in its file. Times are of the wall clock."""

    id: str
    asked_at: float
    expires_at: float
    pid: int


class OpenQuestion(Struct):
    """A question whose answer is awaited, about a call of `client`."""

    stored: StoredQuestion
    on_answer: Callable[[bool | None], None]  # with None if nobody answered in time
    client: object = None


class OpenQuestions:
    """The open questions of one server."""

    def __init__(self, folder: str, loop: AbstractEventLoop) -> None:
        self._folder = folder
        self._loop = loop
        self._open: dict[str, OpenQuestion] = {}
        self._timer: TimerHandle | None = None
        self._key = (
            b""  # read before the first question, so that nobody can replace it between question and answer
        )

    def has_room_for(self, client: object) -> bool:
        """Return True if a question about a call of a client can be stored."""
        if not self._folder or len(self._open) >= MAX_OPEN:
            return False
        return sum(question.client == client for question in self._open.values()) < MAX_OPEN_OF_ONE

    def ask(
        self,
        question: Question,
        keep_s: float,
        on_answer: Callable[[bool | None], None],
        client: object = None,
    ) -> str:
        """Store a question and return its id. Raises `OSError` if that is impossible."""
        now = time.time()
        id = os.urandom(4).hex()
        stored = StoredQuestion(
            **msgspec.structs.asdict(question), id=id, asked_at=now, expires_at=now + keep_s, pid=os.getpid()
        )
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if not self._key:
            self._key = gate_key(os.path.dirname(self._folder))
            stored_questions(self._folder)  # removes what an earlier server has left
        write_atomically(question_path(self._folder, id), msgspec.json.encode(stored), 0o600, sync=False)
        self._open[id] = OpenQuestion(stored, on_answer, client)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)
        return id

    def all(self) -> list[StoredQuestion]:
        """Return the open questions, the oldest first."""
        return [question.stored for question in self._open.values()]

    def answer(self, id: str, *, allow: bool | None) -> bool:
        """Close a question with its answer, or without one; return whether it was open."""
        question = self._open.pop(id, None)
        if question is None:
            return False
        for path in (question_path(self._folder, id), answer_path(self._folder, id)):
            _remove(path)
        question.on_answer(allow)
        return True

    def take_over(self, id: str, on_answer: Callable[[bool | None], None]) -> None:
        """Let another call wait for the answer to an open question."""
        self._open[id].on_answer = on_answer

    def _look(self) -> None:
        """Read the answers that were written meanwhile."""
        now = time.time()
        for id, question in list(self._open.items()):
            written = _read(answer_path(self._folder, id))
            allow = _decision(self._key, self._folder, id, written) if written is not None else None
            if allow is not None:
                self.answer(id, allow=allow)
            elif now >= question.stored.expires_at:
                self.answer(id, allow=None)
        self._timer = self._loop.call_later(LOOK_S, self._look) if self._open else None


def questions_folder(workspace: str, environ: Mapping[str, str]) -> str:
    """Return the folder with the questions of a workspace; empty if the user has no state folder."""
    name = sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:32]
    folder = state_folder(environ, "gate", name)
    return folder if os.path.isabs(folder) else ""


def stored_questions(folder: str) -> list[StoredQuestion]:
    """Return the questions that running servers ask, the oldest first. Others are removed."""
    questions = []
    for name in _names(folder):
        path = os.path.join(folder, name)
        data = _read(path)
        try:
            question = msgspec.json.decode(data, type=StoredQuestion) if data is not None else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            question = None
        if question is None or question.expires_at < time.time() or not is_running(question.pid):
            _remove(path)
        else:
            questions.append(question)
    return sorted(questions, key=lambda question: question.asked_at)


def write_answer(folder: str, id: str, *, allow: bool) -> None:
    """Answer a question of a running server. Raises `OSError` if the user's key cannot be read."""
    signed = _signed_answer(gate_key(os.path.dirname(folder)), folder, id, allow=allow)
    write_atomically(answer_path(folder, id), signed, 0o600, sync=False)


def gate_key(folder: str) -> bytes:
    """Return the user's key for answers and states, in the gate's folder. Raises `OSError`."""
    return user_key(os.path.join(folder, KEY_FILE))


def _signed_answer(key: bytes, folder: str, id: str, *, allow: bool) -> bytes:
    text = f"answer {os.path.basename(folder)} {id} {'allow' if allow else 'deny'}"
    return hmac.digest(key, text.encode(), "sha256").hex().encode()


def _decision(key: bytes, folder: str, id: str, written: bytes) -> bool | None:
    """Return the answer in a file; None if the user has not signed it."""
    for allow in (True, False):
        if hmac.compare_digest(written, _signed_answer(key, folder, id, allow=allow)):
            return allow
    return None


def question_path(folder: str, id: str) -> str:
    """Return the file of a question."""
    return os.path.join(folder, f"{id}.json")


def answer_path(folder: str, id: str) -> str:
    """Return the file of an answer."""
    return os.path.join(folder, f"{id}.answer")


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError:
        return None


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        return
