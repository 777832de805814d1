from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.server.http import server_info
from switchboard_mcp.server.http.server_info import ServerInfo
from tests.cases import each_case
from tests.unit.server.http.front import front


def info(port: int, pid: int) -> ServerInfo:
    return ServerInfo(
        port=port, host="127.0.0.1", bind_address="0.0.0.0", pid=pid, started_at="2025-01-01T00:00:00.000Z"
    )


def test_it_says_all_that_older_agents_look_for(tmp_path: Path) -> None:
    server_info.write(str(tmp_path), info(3100, 7))
    result = json.loads((tmp_path / "server_info.json").read_text())
    assert result == {
        "port": 3100,
        "host": "127.0.0.1",
        "bindAddress": "0.0.0.0",
        "transport": "sse",
        "transports": ["streamable-http", "sse"],
        "mcpEndpoint": "/mcp",
        "sseEndpoint": "/sse",
        "messagesEndpoint": "/messages",
        "healthEndpoint": "/health",
        "pid": 7,
        "startedAt": "2025-01-01T00:00:00.000Z",
    }


def test_only_its_own_file_is_removed(tmp_path: Path) -> None:
    server_info.write(str(tmp_path), info(1, os.getpid() + 1))
    server_info.remove(str(tmp_path))
    assert (tmp_path / "server_info.json").exists()
    server_info.write(str(tmp_path), info(1, os.getpid()))
    server_info.remove(str(tmp_path))
    assert os.listdir(tmp_path) == []
    server_info.remove(str(tmp_path))


@each_case("text", ["", "{", "[]", "{}", '{"port": "x"}', "\xff"])
def test_an_unreadable_entry_stands_for_no_agent(tmp_path: Path, text: str) -> None:
    (tmp_path / "server_info.json").write_text(text, encoding="latin-1")
    server_info.require_free(str(tmp_path))


@each_case("pid", [1 << 22, 1 << 40, 1])
def test_a_process_that_is_gone_or_another_is_nobody(tmp_path: Path, pid: int) -> None:
    server_info.write(str(tmp_path), info(9, pid))
    server_info.require_free(str(tmp_path))


@each_case("host", ["203.0.113.7", "2001:db8::1", "evil.invalid", "", "a\0b", "x" * 300])
def test_an_address_of_another_machine_is_not_contacted(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contacted: list[ServerInfo] = []
    monkeypatch.setattr(server_info, "request", lambda found, *_: contacted.append(found))
    found = ServerInfo(port=80, host=host, pid=os.getpid(), started_at="")
    assert not server_info.is_alive(found)
    assert contacted == []


def test_a_link_and_a_pipe_are_nobody(tmp_path: Path) -> None:
    server_info.write(str(tmp_path), info(9, 1))
    (tmp_path / "server_info.json").rename(tmp_path / "elsewhere.json")
    (tmp_path / "server_info.json").symlink_to(tmp_path / "elsewhere.json")
    assert server_info.read(str(tmp_path)) is None
    (tmp_path / "server_info.json").unlink()
    os.mkfifo(tmp_path / "server_info.json")
    assert server_info.read(str(tmp_path)) is None


async def test_the_server_at_an_address_is_recognised() -> None:
    async with front() as running:
        assert await asyncio.to_thread(server_info.is_alive, info(running.port, os.getpid()))
        assert not await asyncio.to_thread(server_info.is_alive, info(running.port, os.getppid()))


def test_only_one_process_serves_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.getppid()
    server_info.write(str(tmp_path), info(3100, other))
    monkeypatch.setattr(server_info, "is_alive", lambda found: True)
    with pytest.raises(SwitchboardError, match=f"process {other}") as caught:
        server_info.require_free(str(tmp_path))
    assert caught.value.failure.code == "already_serving"
