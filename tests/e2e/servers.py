"""Published servers as children: how each is started, and calls whose results do not depend on the moment."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.workspaces import MOCK_CHILD


class Call(NamedTuple):
    """A call and the block types its result must hold."""

    subtool: str
    args: dict[str, Any]
    blocks: tuple[str, ...] = ("text",)
    structured: bool = False
    error: bool = False


class Servers:
    """Commands and calls of the six servers the tests run."""

    names = ("everything", "filesystem", "git", "memory", "mock", "time")

    def __init__(self, npm_bin: Callable[[str], str], server_bin: Callable[[str], str], folder: Path) -> None:
        self._npm_bin = npm_bin
        self._server_bin = server_bin
        self.folder = folder

    def command(self, name: str) -> list[str]:
        match name:
            case "mock":
                return MOCK_CHILD
            case "filesystem":
                return [self._npm_bin("mcp-server-filesystem"), str(self.folder)]
            case "everything" | "memory":
                return [self._npm_bin(f"mcp-server-{name}")]
            case "time":
                return [self._server_bin("mcp-server-time"), "--local-timezone", "Europe/Lisbon"]
            case _:
                return [self._server_bin(f"mcp-server-{name}")]

    def env(self, name: str, who: str) -> dict[str, str]:
        """Variables of its own; `who` keeps two runs of one server apart."""
        if name == "memory":
            return {"MEMORY_FILE_PATH": str(self.folder / f"memory-{who}.jsonl")}
        return {}

    def calls(self, name: str) -> list[Call]:
        """Calls to make in this order, directly and through Switchboard."""
        return getattr(self, f"_{name}")()  # type: ignore[no-any-return]

    def _mock(self) -> list[Call]:
        return [
            Call("click", {"selector": "#é"}, structured=True),
            Call("screenshot", {}, ("image",)),
            Call("add", {"a": 1, "b": 2.5}, structured=True),
            Call("fail", {"message": "on purpose"}, error=True),
        ]

    def _everything(self) -> list[Call]:
        zipped = {"name": "hello.gz", "data": "data:text/plain,hello"}
        return [
            Call("echo", {"message": 'naïve 😀 \u2028 \\ " \n'}),
            Call("get-sum", {"a": 0.1, "b": 0.2}),
            Call("get-sum", {"a": "one"}, error=True),
            Call("get-tiny-image", {}, ("text", "image", "text")),
            Call("get-structured-content", {"location": "Chicago"}, structured=True),
            Call("get-annotated-message", {"messageType": "error", "includeImage": True}, ("text", "image")),
            Call("get-resource-links", {"count": 2}, ("text", "resource_link", "resource_link")),
            Call("gzip-file-as-resource", {**zipped, "outputType": "resource"}, ("resource",)),
            Call("gzip-file-as-resource", {**zipped, "outputType": "resourceLink"}, ("resource_link",)),
        ]

    def _memory(self) -> list[Call]:
        ada = {"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}
        engine = {"name": "Engine", "entityType": "machine", "observations": []}
        built = {"from": "Ada", "to": "Engine", "relationType": "described"}
        return [
            Call("create_entities", {"entities": [ada, engine]}, structured=True),
            Call("create_relations", {"relations": [built]}, structured=True),
            Call("search_nodes", {"query": "notes"}, structured=True),
            Call("delete_entities", {"entityNames": ["Engine"]}, structured=True),
            Call("read_graph", {}, structured=True),
        ]

    def _filesystem(self) -> list[Call]:
        file, sound = self.folder / "note.txt", self.folder / "silence.wav"
        sound.write_bytes(wave())
        return [
            Call("write_file", {"path": str(file), "content": "first\nsecond é\n"}, structured=True),
            Call("read_text_file", {"path": str(file), "head": 1}, structured=True),
            Call("read_media_file", {"path": str(sound)}, ("audio",), structured=True),
            Call("read_text_file", {"path": str(self.folder / "missing")}, error=True),
            Call("read_text_file", {"path": "/etc/hostname"}, error=True),
        ]

    def _git(self) -> list[Call]:
        repository = self.folder / "repository"
        if not repository.exists():
            make_repository(repository)
        where = {"repo_path": str(repository)}
        return [
            Call("git_status", where),
            Call("git_log", {**where, "max_count": 1}),
            Call("git_show", {**where, "revision": "HEAD"}),
            Call("git_status", {"repo_path": str(self.folder)}, error=True),
        ]

    def _time(self) -> list[Call]:
        convert = {"source_timezone": "Europe/Lisbon", "time": "12:30", "target_timezone": "Asia/Kathmandu"}
        return [
            Call("convert_time", convert, structured=True),
            Call("convert_time", {**convert, "time": "25:00"}, error=True),
        ]


def wave() -> bytes:
    """A WAV file of four silent samples."""
    samples = bytes(8)
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
    body = b"WAVE" + head + struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI", b"RIFF", len(body)) + body


def make_repository(folder: Path) -> None:
    """A git repository with one commit and one change on top of it."""
    folder.mkdir()
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    (folder / "a.txt").write_text("one\n")
    for command in (["init", "-q", "-b", "main"], ["add", "a.txt"], [*who, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    (folder / "a.txt").write_text("two\n")
