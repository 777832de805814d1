"""Whatever is in a config or in the file of a child, it is loaded, or refused with a reason."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.errors import SwitchboardError
from tests.fuzz.driver import fuzz
from tests.fuzz.grammar import encoded, mutated, near, sometimes, texts, values

pytestmark = pytest.mark.soak("fuzz")

child = sometimes(
    {
        "name": texts,
        "type": near("stdio", "http", "sse"),
        "command": near("python3", {"cmd": "python3", "args": ["-c", "pass"], "env": {"A": "${A:-b}"}}),
        "args": near(["a"]),
        "env": near({"A": "${B}"}),
        "url": near("http://127.0.0.1:1/mcp"),
        "headers": near({"a": "b"}),
        "cwd": texts,
        "rpcTimeoutMs": near(1000),
    }
)
config = sometimes(
    {
        "discoverGlobs": near(["mcps/*/.mcp.json"], ["**/**/*.json"]),
        "mcpServers": st.dictionaries(texts, child, max_size=3) | values,
        "suites": near({"a": {"expose": {"deny": ["*"]}, "redactArgs": ["a.*.**"]}}),
        "timeouts": near({"idleMs": 1000}),
        "introspection": near({"mode": "full"}),
        "governance": near({"mode": "governed"}),
        "http": near({"allowedHosts": ["x"]}),
        "mail": near({"enabled": True}),
        "profiles": near({"a": {"suites": ["b"]}}),
        "audit": near({"enabled": True}),
        "bus": near({"url": "redis://127.0.0.1:1"}),
        "middleware": near(["a:b"]),
    }
)
files = st.one_of(encoded(config), encoded(config), mutated(encoded(config)), st.binary(max_size=300))
CPU_S = 0.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


@fuzz(150)
@given(files, st.one_of(encoded(child), mutated(encoded(child)), st.binary(max_size=200)))
def test_a_config_is_loaded_or_refused_with_a_reason(folder: Path, config: bytes, entry: bytes) -> None:
    (folder / "switchboard.config.json").write_bytes(config)
    (folder / "mcps" / "one").mkdir(parents=True, exist_ok=True)
    (folder / "mcps" / "one" / ".mcp.json").write_bytes(entry)
    began = time.thread_time()
    refusal = load(folder)
    assert time.thread_time() - began < CPU_S
    assert refusal is None or str(folder) in refusal


def load(folder: Path) -> str | None:
    """Load the workspace; return the reason if it is refused."""
    try:
        load_workspace(str(folder), None, {"HOME": str(folder)})
    except SwitchboardError as problem:
        return problem.failure.message
    return None
