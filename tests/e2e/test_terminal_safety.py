"""Every command under a terminal, with hostile names, descriptions, errors and messages: nothing of them is obeyed."""

from __future__ import annotations

import json
import os
import pty
import re
import select
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from switchboard_mcp.cli.index import ALL_COMMANDS, parser_for
from tests.cases import each_case
from tests.children.hostile_texts import HOSTILE
from tests.e2e import command_server
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.e2e.shell import run
from tests.e2e.web import serving
from tests.e2e.workspaces import PYTHON, REPO, add_child, configure, write_child
from tests.patience import PATIENCE_S

pytestmark = needs_redis
CHILD = [*PYTHON, str(REPO / "tests" / "children" / "hostile_texts.py")]
# Its arguments for every command. Each is run plainly, and those that show texts with --json too.
COMMANDS: dict[str, list[list[str]]] = {
    "serve": [["--dry-run"], ["--profile", HOSTILE], ["--log-level", "debug"], ["--http", HOSTILE]],
    "list": [[]],
    "introspect": [["evil"], ["evil", HOSTILE], ["crash"], [HOSTILE]],
    "call": [
        ["evil", "echo"],
        ["evil", "fail"],
        ["evil", f"tool {HOSTILE}"],
        ["evil", HOSTILE],
        ["crash", "echo"],
        [HOSTILE, HOSTILE],
    ],
    "login": [["evil"], [HOSTILE]],
    "logout": [["evil"], [HOSTILE]],
    "token": [["list"], ["revoke", HOSTILE], ["new", HOSTILE]],
    "secret": [["list"], ["remove", HOSTILE], ["set", HOSTILE]],
    "approve": [["--list"], ["evil", "--dry-run"], [HOSTILE]],
    "lock": [["evil"], ["--check"], ["--accept", HOSTILE], ["crash"]],
    "evidence": [[], ["--verify"]],
    "gate": [["check", "evil", "echo"], ["check", HOSTILE, HOSTILE], ["test", HOSTILE]],
    "approvals": [[], ["allow", HOSTILE]],
    "trust": [[], ["--forget"], [HOSTILE]],
    "sandbox": [["show"], ["show", HOSTILE], ["update"]],
    "broker": [["status"], [HOSTILE]],
    "bus": [["status"], ["tail"], ["tail", "--stream", "dead"], ["replay", HOSTILE]],
    "audit": [["show"], ["tail"], ["verify"]],
    "find": [["evil"], [HOSTILE]],
    "program": [["list"], ["run", HOSTILE], ["remove", HOSTILE], [HOSTILE]],
    "tokens": [[]],
    "status": [[]],
    "dashboard": [[]],
    "mail": [[], [HOSTILE]],
    "terminal": [[HOSTILE, "--", "true"], ["term", "--", HOSTILE]],
    "doctor": [[], ["--host", HOSTILE], ["--host", "codex"]],
    "init": [["--dry-run"], ["--yes", "--dry-run"]],
    "add": [[HOSTILE, "--dry-run", "--", "echo", HOSTILE], ["new", "--url", HOSTILE]],
    "remove": [[HOSTILE]],
    "import": [[HOSTILE], ["hostile.json", "--dry-run"]],
    "enable": [[HOSTILE]],
    "disable": [[HOSTILE]],
    "revert": [[], ["--dry-run"]],
    "schema": [[], [HOSTILE]],
    "completions": [["bash"], [HOSTILE]],
    "ask": [["evil", HOSTILE], [HOSTILE, HOSTILE]],
    "wrap": [["evil", "--dry-run"], [HOSTILE]],
    "unwrap": [["evil"], [HOSTILE]],
    "wrapper": [["evil"], [HOSTILE]],
    "mail send": [["bob", "--subject", HOSTILE, HOSTILE], [HOSTILE, HOSTILE], ["bob", "--file", HOSTILE]],
    "mail inbox": [["--as", "ada"], ["--as", HOSTILE]],
    "mail read": [["{id}", "--as", "ada"], [HOSTILE, "--as", "ada"]],
    "mail claim": [["--as", "ada"], [HOSTILE, "--as", "ada"]],
    "mail ack": [["{id}", "--reject", HOSTILE, "--as", "ada"], [HOSTILE, "--as", "ada"]],
    "mail wait": [["--as", "ada", "--timeout", "1"]],
    "mail receipts": [["--as", "bob"]],
    "mail search": [["evil", "--as", "ada"], [HOSTILE, "--as", "ada"]],
    "mail thread": [["{id}", "--as", "ada"], [HOSTILE, "--as", "ada"]],
    "mail progress": [["{id}", HOSTILE, "--as", "ada"], [HOSTILE, "--as", "ada"]],
    "mail agents": [[], ["remove", HOSTILE]],
    "mail teams": [[], [HOSTILE]],
    "mail workflow": [[], ["start", HOSTILE]],
    "mail dead": [[], ["requeue", HOSTILE]],
    "mail verify": [[]],
    "mail export": [[], ["--day", HOSTILE]],
    "mail backup": [[HOSTILE]],
    "mail restore": [[HOSTILE]],
    "mail salvage": [["--workspace", HOSTILE]],
    "mail prune": [[], [HOSTILE]],
    "mail hook": [["--as", "ada"], ["--host", HOSTILE]],
}
# Commands that certainly show a text from elsewhere: without it, their row here would prove nothing.
SHOWING = {
    *(
        "serve",
        "list",
        "introspect",
        "call",
        "approve",
        "lock",
        "bus",
        "audit",
        "find",
        "tokens",
        "status",
    ),
    *("doctor", "init", "import", "login", "wrap", "schema", "completions"),
    *("mail send", "mail inbox", "mail read", "mail search", "mail thread"),
}
# Styles and movements of our own.
STYLE = r"(?:0|1|2|31|32|33|36)(?:;(?:31|32|33|36))?m"
OURS = re.compile(rf"\x1b\[(?:{STYLE}|\d+A\r|[HJK]|\?(?:1049|25)[hl])|\r+\n")
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace in which everything that has a text has a hostile one, served over HTTP."""
    workspace = tmp_path_factory.mktemp("hostile")
    redis = RedisServer(workspace / "redis")
    with ExitStack() as stack:
        stack.callback(redis.kill)
        redis.start()
        furnish(workspace, redis.url)
        web = stack.enter_context(serving(workspace, env=environment(workspace)))
        web.initialize().ask("tools/call", {"name": "evil_suite", "arguments": {"action": "introspect"}})
        yield workspace


def furnish(workspace: Path, url: str) -> None:
    """Write config, children, files of hosts, stream entries and messages."""
    configure(
        workspace,
        {
            "audit": {"enabled": True},
            "bus": {"url": url, "prefix": "t"},
            "mail": {"enabled": True},
            "find": {"enabled": True},
            "http": {"tokens": {"carol": "carols-token-0123456789"}},
        },
    )
    add_child(workspace, "evil", CHILD, description=HOSTILE)
    add_child(workspace, "crash", [*CHILD, "crash"], description=HOSTILE)
    write_child(
        workspace, "broken", {"name": HOSTILE, "command": {"cmd": HOSTILE, "args": [HOSTILE]}, HOSTILE: 1}
    )
    write_child(
        workspace, "remote", {"name": "remote", "url": f"http://127.0.0.1:9/{HOSTILE}", "type": "http"}
    )
    entries = {
        HOSTILE: {"command": HOSTILE, "args": [HOSTILE]},
        "fine": {"command": "echo", "args": [HOSTILE]},
    }
    servers = {"mcpServers": entries}
    (workspace / "hostile.json").write_text(json.dumps(servers))
    home = workspace / "home"
    (home / ".cursor").mkdir(parents=True)
    (home / ".cursor" / "mcp.json").write_text(json.dumps(servers))
    (home / ".claude.json").write_text(json.dumps(servers))
    with Redis.from_url(url) as client:
        for stream in ("t:events", "t:dead"):
            client.xadd(stream, {"event": HOSTILE, HOSTILE: HOSTILE})
    environ = environment(workspace)
    for agent in ("ada", "bob"):
        added = run(workspace, "mail", "agents", "add", agent, **environ)
        assert added.returncode == 0, added.stderr
    for agent, words in (("ada", ["bob"]), ("bob", ["ada"])):
        sent = run(workspace, "mail", "send", *words, "--as", agent, "--subject", HOSTILE, HOSTILE, **environ)
        assert sent.returncode == 0, sent.stderr
    (workspace / ".switchboard" / "dropped.json").write_text(HOSTILE)
    run(workspace, "call", "evil", "echo", **environ)


def environment(workspace: Path) -> dict[str, str]:
    return {
        "HOME": str(workspace / "home"),
        "XDG_CACHE_HOME": str(workspace / "cache"),
        "TERM": "xterm",
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
    }


def shown_by(workspace: Path, arguments: list[str]) -> str:
    """All that a terminal gets from a command."""
    ours, theirs = pty.openpty()
    with open(os.devnull) as nothing:
        process = command_server.start(
            arguments,
            workspace,
            {**os.environ, **environment(workspace)},
            (nothing.fileno(), theirs, theirs),
            new_session=True,
        )
    os.close(theirs)
    shown = b""
    try:
        while True:
            ready, _, _ = select.select([ours], [], [], PATIENCE_S)
            assert ready, f"{arguments} does not end: {shown!r}"
            data = os.read(ours, 65_536)
            shown += data
    except OSError:  # how a terminal says that everybody has gone
        pass
    finally:
        os.close(ours)
        process.wait(PATIENCE_S)
    assert b"Traceback" not in shown, shown.decode()
    return shown.decode("utf-8")


def test_the_table_has_every_command() -> None:
    assert set(COMMANDS) == set(ALL_COMMANDS)


@each_case("name", COMMANDS)
def test_no_command_lets_a_text_take_over_the_terminal(hostile: Path, name: str) -> None:
    id = None
    if any("{id}" in arguments for arguments in COMMANDS[name]):
        inbox = run(hostile, "mail", "inbox", "--as", "ada", "--json", **environment(hostile))
        id = re.search(r'"id": ?"([^"]+)"', inbox.stdout)
    has_json = name in SHOWING and "--json" in parser_for(name).format_help()
    kinds = [[], ["--json"]] if has_json else [[]]
    everything = ""
    for arguments in COMMANDS[name]:
        words = [word.replace("{id}", id[1] if id else "none") for word in arguments]
        for more in kinds:
            place = words.index("--") if "--" in words else len(words)
            shown = shown_by(hostile, [*name.split(), *words[:place], *more, *words[place:]])
            rest = OURS.sub("", shown)
            assert OBEYED.search(rest) is None, (words, more, rest)
            everything += shown
    if name in SHOWING:
        assert "gnp" in everything


def test_an_unknown_command_or_option_is_not_obeyed_either(hostile: Path) -> None:
    for arguments in (
        [HOSTILE],
        ["list", f"--{HOSTILE}"],
        ["list", "--config", HOSTILE],
        ["--workspace", HOSTILE],
    ):
        shown = shown_by(hostile, arguments)
        assert "gnp" in shown
        assert OBEYED.search(OURS.sub("", shown)) is None, shown


def test_a_config_full_of_mistakes_is_not_obeyed_either(tmp_path: Path) -> None:
    configure(tmp_path, {HOSTILE: 1, "http": {HOSTILE: 2}, "suites": {HOSTILE: {HOSTILE: 3}}})
    for command in (["list"], ["serve"], [], ["doctor"], ["list", "--json"]):
        shown = shown_by(tmp_path, command)
        assert "gnp" in shown
        assert OBEYED.search(OURS.sub("", shown)) is None, shown
