"""Package runners: the command of the first phase, what the second runs, and when a package is installed again."""

from __future__ import annotations

import json
import os
from pathlib import Path

from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.sandbox.installations import (
    Installation,
    begin,
    find_installation,
    finish,
    installed_program,
    lock,
    second_phase,
)
from switchboard_mcp.sandbox.plan import Launch
from tests.cases import each_case


def installation(folder: Path, *argv: str, **env: str) -> Installation | None:
    return find_installation(Launch(list(argv), env, "/w"), str(folder / "c.packages"), str(folder))


def found(folder: Path, *argv: str, **env: str) -> Installation:
    one = installation(folder, *argv, **env)
    assert one is not None
    return one


@each_case(
    ("argv", "start", "package", "rest"),
    [
        (["npx", "-y", "pkg@1.2", "--flag"], ["npm", "install", "--prefix"], "pkg@1.2", ["--flag"]),
        (["npx", "-y", "--package=@a/b", "prog", "x"], ["npm", "install", "--prefix"], "@a/b", ["x"]),
        (["npm", "exec", "--", "pkg"], ["npm", "install", "--prefix"], "pkg", []),
        (["pnpm", "dlx", "pkg"], ["pnpm", "add", "--dir"], "pkg", []),
        (["bunx", "pkg", "-v"], ["bun", "add", "--cwd"], "pkg", ["-v"]),
        (["uvx", "pkg==1.0", "a"], ["uv", "tool", "install"], "pkg==1.0", ["a"]),
        (["uvx", "--from", "pkg[x]", "prog", "a"], ["uv", "tool", "install"], "pkg[x]", ["a"]),
        (["uv", "tool", "run", "pkg"], ["uv", "tool", "install"], "pkg", []),
        (["pipx", "run", "pkg", "a"], ["pipx", "install"], "pkg", ["a"]),
    ],
)
def test_a_runner_is_replaced_by_an_installation_and_the_program(
    tmp_path: Path, argv: list[str], start: list[str], package: str, rest: list[str]
) -> None:
    one = found(tmp_path, *argv, PATH="/nowhere")
    assert one.launch.argv[: len(start)] == start
    assert one.launch.argv[-1] == package
    assert one.rest == rest
    assert (one.words.write, one.words.network) == (["${cache}"], "all")
    assert one.launch.cwd == one.folder


@each_case(
    "argv",
    [["node", "x.js"], ["npx", "-c", "sh"], ["npx", "--registry", "x", "pkg"], ["npm", "start"], ["uvx"], ["uv", "x"]],
)  # fmt: skip
def test_a_command_that_is_no_plain_runner_runs_unchanged(tmp_path: Path, argv: list[str]) -> None:
    assert installation(tmp_path, *argv) is None


def test_a_package_is_installed_once_for_each_command(tmp_path: Path) -> None:
    one = found(tmp_path, "npx", "pkg@1.0.0", "--flag")
    os.close(lock(one))
    assert installed_program(one) == ""
    begin(one)
    assert finish(one) == ""  # the command installed nothing
    package = Path(one.folder) / "node_modules" / "pkg"
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "pkg", "bin": "run.js"}))
    (package / "run.js").write_text("")
    assert finish(one) == str(package / "run.js") == installed_program(one)
    assert installed_program(found(tmp_path, "npx", "-y", "pkg@1.0.0", "--other")) == str(package / "run.js")
    assert installed_program(found(tmp_path, "npx", "pkg@1.0.1")) == ""
    launch, words = second_phase(
        one, installed_program(one), Launch(["npx"], {"A": "b"}, "/w"), PRESETS["strict"]
    )
    assert (launch.argv, launch.cwd, launch.env) == ([str(package / "run.js"), "--flag"], "/w", {"A": "b"})
    assert words.read == [one.folder]
    assert words.network == "none"
    begin(one)
    assert installed_program(one) == ""


def test_a_python_tool_is_found_by_its_program(tmp_path: Path) -> None:
    for argv, place in ((["uvx", "--from", "pkg", "prog"], "tools"), (["pipx", "run", "prog"], "venvs")):
        one = found(tmp_path, *argv)
        begin(one)
        program = Path(one.folder) / place / "pkg" / "bin" / "prog"
        program.parent.mkdir(parents=True)
        program.write_text("")
        assert finish(one) == str(program)


def test_the_first_phase_reads_the_settings_of_the_registry(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text("registry=https://registry.example/")
    one = found(tmp_path, "npx", "pkg", npm_config_cache="/c")
    assert one.launch.env["npm_config_userconfig"] == str(tmp_path / ".npmrc")
    assert str(tmp_path / ".npmrc") in one.words.read
    assert "npm_config_*" in (one.words.env or [])
    assert "GITHUB_TOKEN" not in (one.words.env or [])
