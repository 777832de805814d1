"""The hosts: where each is, how it is told of Switchboard and of its model, and what it is asked.

Everything a host reads or writes is in a home of its own. It finds no network: what is not this machine goes to
a proxy that does not exist, at once and wherever the tests run. Nothing here knows what is to be expected.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pytest

from tests.patience import PATIENCE_S
from tests.processes import MARK

Json = dict[str, Any]
NPM = Path(__file__).resolve().parent / "npm"
ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
MUSL = "-musl" if sys.platform == "linux" and platform.libc_ver()[0] != "glibc" else ""
PLATFORM = f"{sys.platform}-{ARCHITECTURES.get(platform.machine().lower(), platform.machine())}{MUSL}"
# Each takes a few seconds at most; one that takes much longer waits for the network.
# What a host gives Switchboard for its start, where it would otherwise be five seconds.
PATIENCE_MS = 30_000
PROMPT = "Use the tool."
RETRIES = 4
# Nobody listens there; port 9 was once for throwing away what came.
NOWHERE = "http://127.0.0.1:9"


class Stdio(NamedTuple):
    """An entry for a server that the host starts."""

    command: list[str]


class Http(NamedTuple):
    """An entry for a server that is there already."""

    url: str
    token: str
    kind: Literal["http", "sse"] = "http"


Entry = Stdio | Http


class Told(NamedTuple):
    """The output of a host."""

    out: str
    err: str


class HostProgram(ABC):
    """One host with a home of its own, told of one server, `switchboard`, and of one model."""

    name: ClassVar[str]
    # The first method it sends, and how it calls a suite towards its model.
    opening: ClassVar[str] = "initialize"
    tool_prefix: ClassVar[str]

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir(parents=True)
        (home / "tmp").mkdir()

    @abstractmethod
    def command(self) -> list[str]:
        """The program itself."""

    @abstractmethod
    def configure(self, entry: Entry, model: str) -> None:
        """Write its own files, as a user would."""

    @abstractmethod
    def says_connected(self) -> bool:
        """Ask it by its own means how the server does."""

    @abstractmethod
    def prompt(self) -> Told:
        """Let its model use the suite, and end."""

    def prompt_until(self, called: Callable[[Told], object]) -> Told:
        """Prompt until its model has called: on a busy machine a host may ask its model before its server is there."""
        told = self.prompt()
        for _ in range(RETRIES):
            if called(told):
                break
            told = self.prompt()
        return told

    def variables(self) -> dict[str, str]:
        """Return the environment variables it needs."""
        return {}

    def environment(self) -> dict[str, str]:
        xdg = {
            f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("CONFIG", "CACHE", "DATA", "STATE")
        }
        proxies = {name: NOWHERE for way in ("HTTP_PROXY", "HTTPS_PROXY") for name in (way, way.lower())}
        local = "127.0.0.1,localhost"
        return {
            **{name: os.environ[name] for name in ("PATH", MARK) if name in os.environ},
            "HOME": str(self.home),
            "TMPDIR": str(self.home / "tmp"),
            "LANG": "C.UTF-8",
            **xdg,
            **proxies,
            "NO_PROXY": local,
            "no_proxy": local,
            **self.variables(),
        }

    def run(self, *arguments: str) -> Told:
        process = self.start(*arguments, stdin=subprocess.DEVNULL)
        with process:
            try:
                return Told(*process.communicate(timeout=PATIENCE_S))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"{self.name} hangs; it said:\n{out}\n{err}") from None

    def start(self, *arguments: str, stdin: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command(), *arguments],
            cwd=self.project,
            env=self.environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, file: str, content: Json | str) -> None:
        path = self.home / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


class ClaudeCode(HostProgram):
    name = "claude-code"
    opening = "server/discover"
    tool_prefix = "mcp__switchboard__"
    # Otherwise the model would see names alone, and have to search for the rest.
    tool_search = False
    _model = ""

    def command(self) -> list[str]:
        return [native("@anthropic-ai/claude-code", "claude")]

    def configure(self, entry: Entry, model: str) -> None:
        self._model = model
        self.write(".claude.json", {"mcpServers": {"switchboard": self._entry(entry)}})

    def _entry(self, entry: Entry) -> Json:
        match entry:
            case Stdio(command):
                return {"command": command[0], "args": command[1:]}
            case Http(url, token, kind):
                return {"type": kind, "url": url, "headers": {"Authorization": f"Bearer {token}"}}

    def variables(self) -> dict[str, str]:
        return {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ANTHROPIC_BASE_URL": self._model,
            "ANTHROPIC_API_KEY": "none",
            "ENABLE_TOOL_SEARCH": "true" if self.tool_search else "false",
            "MCP_CONNECT_TIMEOUT_MS": str(PATIENCE_MS),
        }

    def says_connected(self) -> bool:
        listed = self.run("mcp", "list").out
        return any(
            line.startswith("switchboard: ") and line.endswith("✔ Connected") for line in lines(listed)
        )

    def prompt(self) -> Told:
        return self.run("-p", PROMPT, "--allowedTools", "mcp__switchboard")


class Codex(HostProgram):
    name = "codex"
    tool_prefix = "mcp__switchboard/"
    # One of its own models would search for tools.
    model = "scripted"

    def command(self) -> list[str]:
        return [native("@openai/codex", "vendor/*/bin/codex")]

    def configure(self, entry: Entry, model: str) -> None:
        self.write(
            ".codex/config.toml",
            f"""
            model = "{self.model}"
            model_provider = "scripted"
            check_for_update_on_startup = false
            analytics.enabled = false
            [model_providers.scripted]
            name = "scripted"
            base_url = "{model}/v1"
            wire_api = "responses"
            request_max_retries = 0
            stream_max_retries = 0
            [mcp_servers.switchboard]
            default_tools_approval_mode = "approve"
            startup_timeout_sec = 180
            {self._entry(entry)}
            """,
        )

    def _entry(self, entry: Entry) -> str:
        match entry:
            case Stdio(command):
                # It hands down almost nothing of its environment.
                return f"command = {command[0]!r}\nargs = {json.dumps(command[1:])}\nenv_vars = ['{MARK}']"
            case Http(url, token, _):
                return f"url = '{url}'\nhttp_headers = {{ Authorization = 'Bearer {token}' }}"

    def says_connected(self) -> bool:
        """Its command line only shows its settings; the server that its editors talk to knows more."""
        with self.start("app-server", stdin=subprocess.PIPE) as process:
            assert process.stdin
            assert process.stdout
            try:
                about = {"clientInfo": {"name": "tests", "version": "1"}}
                for message in (
                    {"id": 1, "method": "initialize", "params": about},
                    {"method": "initialized"},
                    {"id": 2, "method": "mcpServerStatus/list", "params": {}},
                ):
                    process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
                answers = (json.loads(line) for line in process.stdout)
                found = next(answer["result"]["data"] for answer in answers if answer.get("id") == 2)
                process.stdin.close()
                process.wait(PATIENCE_S)
            finally:
                process.kill()
        return any(
            server["name"] == "switchboard" and server["serverInfo"]["name"] == "switchboard"
            for server in found
            if server["toolsError"] is None
        )

    def prompt(self) -> Told:
        return self.run("exec", "--skip-git-repo-check", PROMPT)


class Gemini(HostProgram):
    name = "gemini"
    tool_prefix = "mcp_switchboard_"
    _model = ""

    def command(self) -> list[str]:
        script = NPM / "node_modules" / "@google" / "gemini-cli" / "bundle" / "gemini.js"
        return ["node", installed(script)]

    def configure(self, entry: Entry, model: str) -> None:
        self._model = model
        settings = {
            "mcpServers": {"switchboard": self._entry(entry)},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        }
        self.write(".gemini/settings.json", settings)

    def _entry(self, entry: Entry) -> Json:
        match entry:
            case Stdio(command):
                return {"command": command[0], "args": command[1:]}
            case Http(url, token, kind):
                return {"type": kind, "url": url, "headers": {"Authorization": f"Bearer {token}"}}

    def variables(self) -> dict[str, str]:
        # It would start itself a second time, for more memory.
        return {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": self._model,
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }

    def says_connected(self) -> bool:
        told = self.run("mcp", "list")
        return any(
            "✓ switchboard: " in line and line.endswith("Connected") for line in lines(told.out + told.err)
        )

    def prompt(self) -> Told:
        # With the usual model it would first ask another one which to take.
        return self.run("-m", "gemini-2.5-flash", "-p", PROMPT, "--approval-mode", "yolo")


class OpenCode(HostProgram):
    name = "opencode"
    tool_prefix = "switchboard_"

    def command(self) -> list[str]:
        return [native("opencode", "bin/opencode")]

    def configure(self, entry: Entry, model: str) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{model}/v1", "apiKey": "none"},
            "models": {"scripted": {}},
        }
        settings = {
            "mcp": {"switchboard": self._entry(entry)},
            "provider": {"scripted": provider},
            "enabled_providers": ["scripted"],
            "model": "scripted/scripted",
            "small_model": "scripted/scripted",
            "autoupdate": False,
            "share": "disabled",
        }
        self.write("config/opencode/opencode.json", settings)

    def _entry(self, entry: Entry) -> Json:
        match entry:
            case Stdio(command):
                return {"type": "local", "command": command, "timeout": PATIENCE_MS}
            case Http(url, token, _):
                headers = {"Authorization": f"Bearer {token}"}
                remote = {"type": "remote", "url": url, "headers": headers, "oauth": False}
                return {**remote, "timeout": PATIENCE_MS}

    def variables(self) -> dict[str, str]:
        off = ("AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "MODELS_FETCH", "CLAUDE_CODE")
        return {f"OPENCODE_DISABLE_{name}": "1" for name in off}

    def says_connected(self) -> bool:
        return any(
            "✓ switchboard" in line and "connected" in line for line in lines(self.run("mcp", "list").out)
        )

    def prompt(self) -> Told:
        return self.run("run", "--title", "test", PROMPT)


class CopilotCli(HostProgram):
    """Not among the installed hosts: `COPILOT_CLI` names the program."""

    name = "copilot-cli"
    tool_prefix = "switchboard-"
    _model = ""

    def command(self) -> list[str]:
        program = os.environ.get("COPILOT_CLI", "")
        if not program:
            pytest.skip("COPILOT_CLI names no program")
        return [program]

    def configure(self, entry: Entry, model: str) -> None:
        self._model = model
        server = {**self._entry(entry), "tools": ["*"], "deferTools": "never"}
        self.write(".copilot/mcp-config.json", {"mcpServers": {"switchboard": server}})

    def _entry(self, entry: Entry) -> Json:
        match entry:
            case Stdio(command):
                return {"type": "local", "command": command[0], "args": command[1:]}
            case Http(url, token, kind):
                return {"type": kind, "url": url, "headers": {"Authorization": f"Bearer {token}"}}

    def variables(self) -> dict[str, str]:
        return {
            "COPILOT_PROVIDER_BASE_URL": f"{self._model}/v1",
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_MODEL": "gpt-4.1",
            "COPILOT_AUTO_UPDATE": "false",
        }

    def says_connected(self) -> bool:
        return "switchboard" in self.run("mcp", "list").out

    def prompt(self) -> Told:
        return self.run("-p", PROMPT, "--allow-all-tools", "--no-color")


HOSTS: tuple[type[HostProgram], ...] = (ClaudeCode, Codex, Gemini, OpenCode)
# Those whose settings can ask for HTTP+SSE.
WITH_SSE: tuple[type[HostProgram], ...] = (ClaudeCode, Gemini)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def native(package: str, program: str) -> str:
    """A program that comes as one package per platform; skips the test where there is none for this one."""
    package = f"{package}-{PLATFORM}"
    if package not in json.loads((NPM / "package.json").read_text())["optionalDependencies"]:
        pytest.skip(f"{package} is not in {NPM / 'package.json'}")
    folder = NPM / "node_modules" / package
    return installed(next(iter(folder.glob(program)), folder / program))


def installed(program: Path) -> str:
    if not program.exists():
        pytest.fail(f"{program} is missing: run `scripts/setup hosts`", pytrace=False)
    return str(program)
