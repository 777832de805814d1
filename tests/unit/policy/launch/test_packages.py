from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.policy.launch.packages import resolve
from switchboard_mcp.policy.launch.program_resolution import Resolved, Unresolved
from tests.cases import each_case

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
SHIM = "#!{python}\nimport sys\nfrom {module} import main\nsys.exit(main())\n"


def spec(cwd: Path, command: str, *args: str) -> ChildSpec:
    return ChildSpec(name="child", source="file", command=command, args=list(args), cwd=str(cwd))


def found(outcome: Resolved | Unresolved) -> Resolved:
    assert isinstance(outcome, Resolved), outcome
    return outcome


def why(outcome: Resolved | Unresolved) -> str:
    assert isinstance(outcome, Unresolved), outcome
    return outcome.why


@pytest.fixture
def node() -> str:
    path = shutil.which("node")
    assert path is not None
    return path


@pytest.fixture
def npm(repo: Path, npm_bin: Callable[[str], str]) -> Path:
    """The folder in which npm has installed real servers."""
    npm_bin("mcp-server-everything")
    return repo / "tests" / "npm"


@pytest.fixture
def servers(repo: Path, server_bin: Callable[[str], str]) -> Path:
    """An environment with real servers in Python."""
    server_bin("mcp-server-git")
    return repo / ".venv-servers"


def package(folder: Path, name: str, **manifest: Any) -> Path:
    place = folder / "node_modules" / name
    place.mkdir(parents=True)
    (place / "package.json").write_text(json.dumps({"name": name, "version": "1.2.3", **manifest}))
    (place / "cli.js").write_text("#!/usr/bin/env node\nserve()\n")
    return place


# --- npm --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "args", "taken"),
    [
        ("npx", ["-y", "@modelcontextprotocol/server-everything"], 2),
        ("npx", ["@modelcontextprotocol/server-everything@latest", "stdio"], 1),
        ("/usr/bin/npx", ["--yes", "--", "@modelcontextprotocol/server-everything"], 3),
        ("npx", ["-p", "@modelcontextprotocol/server-everything", "mcp-server-everything"], 3),
        ("npx", ["--package=@modelcontextprotocol/server-everything", "mcp-server-everything"], 2),
        ("npm", ["exec", "@modelcontextprotocol/server-everything"], 2),
        ("pnpm", ["dlx", "@modelcontextprotocol/server-everything"], 2),
        ("bunx", ["@modelcontextprotocol/server-everything"], 1),
    ],
)
def test_a_package_runner_is_followed_to_the_script_it_runs(
    npm: Path, node: str, command: str, args: list[str], taken: int
) -> None:
    resolved = found(resolve(spec(npm, command, *args), ENVIRON))
    place = npm / "node_modules/@modelcontextprotocol/server-everything"
    assert resolved.argv == [node, str(place / "dist/index.js")]
    assert resolved.replaces == taken
    assert resolved.files == [node, str(place / "dist/index.js"), str(place)]
    version = json.loads((place / "package.json").read_text())["version"]
    assert resolved.package == f"npm:@modelcontextprotocol/server-everything@{version}"


def test_the_version_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    package(tmp_path, "pkg", bin="cli.js")
    assert found(resolve(spec(tmp_path, "npx", "pkg@1.2.3"), ENVIRON)).package == "npm:pkg@1.2.3"
    assert "(found: 1.2.3)" in why(resolve(spec(tmp_path, "npx", "pkg@2.0.0"), ENVIRON))


def test_a_missing_package_is_refused_with_the_command_that_installs_it(tmp_path: Path) -> None:
    outcome = resolve(spec(tmp_path, "npx", "-y", "no-such-package@1"), ENVIRON)
    assert "no-such-package@1 is not installed here" in why(outcome)
    assert isinstance(outcome, Unresolved)
    assert "npm install no-such-package@1" in outcome.hint


def test_the_cache_of_npx_is_looked_into(tmp_path: Path) -> None:
    home = tmp_path / "home"
    place = package(home / ".npm" / "_npx" / "abc", "pkg", bin={"pkg": "cli.js"})
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    resolved = found(resolve(spec(workspace, "npx", "pkg"), {**ENVIRON, "HOME": str(home)}))
    assert resolved.argv[1] == str((place / "cli.js").resolve())


def test_the_program_is_the_one_npx_would_choose(tmp_path: Path) -> None:
    package(tmp_path, "@s/two", bin={"two": "cli.js", "other": "nothing.js"})
    assert found(resolve(spec(tmp_path, "npx", "@s/two"), ENVIRON)).argv[1].endswith("cli.js")
    assert "not in the package" in why(resolve(spec(tmp_path, "npx", "-p", "@s/two", "other"), ENVIRON))
    package(tmp_path, "unclear", bin={"a": "cli.js", "b": "cli.js"})
    assert "has no program 'unclear' (it has a, b)" in why(resolve(spec(tmp_path, "npx", "unclear"), ENVIRON))


def test_a_program_outside_its_package_is_refused(tmp_path: Path) -> None:
    package(tmp_path, "sly", bin="../../evil.js")
    (tmp_path / "evil.js").write_text("#!/usr/bin/env node\n")
    assert "is not in the package" in why(resolve(spec(tmp_path, "npx", "sly"), ENVIRON))


@each_case(
    ("args", "expected"),
    [
        (["-c", "evil"], "`-c`"),
        (["--call=evil"], "`--call`"),
        (["https://evil.example/x.tgz"], "not a package name"),
        (["git+ssh://evil"], "not a package name"),
        (["./local"], "not a package name"),
        (["-y"], "names no package"),
        (["-p", "a", "-p", "b", "c"], "several packages"),
    ],
)
def test_ambiguous_arguments_of_a_package_runner_are_refused(
    tmp_path: Path, args: list[str], expected: str
) -> None:
    assert expected in why(resolve(spec(tmp_path, "npx", *args), ENVIRON))


@each_case("command", ["npm", "yarn", "uv", "pipx", "poetry", "conda"])
def test_a_package_manager_that_runs_something_else_is_refused(tmp_path: Path, command: str) -> None:
    assert "is unknown" in why(resolve(spec(tmp_path, command, "start"), ENVIRON))


def test_an_installed_program_is_followed_through_its_link(npm: Path, node: str) -> None:
    link = npm / "node_modules/.bin/mcp-server-everything"
    resolved = found(resolve(spec(npm, str(link)), ENVIRON))
    assert resolved.argv == [node, str(link.resolve())]
    assert resolved.replaces == 0


# --- Python -----------------------------------------------------------------------------------------------


def test_a_python_program_is_its_interpreter_and_its_script(servers: Path) -> None:
    resolved = found(
        resolve(spec(servers, str(servers / "bin/mcp-server-git"), "--repository", "x"), ENVIRON)
    )
    (code,) = (servers / "lib").glob("python3*/site-packages/mcp_server_git")
    assert resolved.argv == [str(servers / "bin/python"), "-I", str(servers / "bin/mcp-server-git")]
    assert resolved.files == [resolved.argv[0], resolved.argv[2], str(code)]


def test_a_python_module_is_followed_to_its_file(servers: Path) -> None:
    python = str(servers / "bin/python")
    resolved = found(resolve(spec(servers, python, "-u", "-m", "mcp_server_time", "--tz", "UTC"), ENVIRON))
    (code,) = (servers / "lib").glob("python3*/site-packages/mcp_server_time")
    assert resolved.argv == [python, "-u", "-I", "-m", "mcp_server_time"]
    assert resolved.replaces == 3
    assert resolved.files == [python, str(code / "__main__.py"), str(code)]
    assert "was not found" in why(resolve(spec(servers, python, "-m", "no_such_module"), ENVIRON))


@each_case(
    ("command", "args", "taken"),
    [
        ("uvx", ["tool-pkg", "--x"], 1),
        ("uvx", ["tool-pkg@1.0.0"], 1),
        ("uvx", ["--from", "tool-pkg==1.0.0", "tool-pkg"], 3),
        ("uv", ["tool", "run", "tool-pkg"], 3),
        ("pipx", ["run", "tool-pkg"], 2),
    ],
)
def test_a_python_tool_is_followed_into_its_environment(
    tmp_path: Path, command: str, args: list[str], taken: int
) -> None:
    place = tmp_path / "home/.local/share/uv/tools/tool-pkg"
    script = place / "bin/tool-pkg"
    library = place / "lib/python3.12/site-packages"
    script.parent.mkdir(parents=True)
    (library / "tool_pkg").mkdir(parents=True)
    (library / "tool_pkg-1.0.0.dist-info").mkdir()
    script.write_text(SHIM.format(python=sys.executable, module="tool_pkg.cli"))
    resolved = found(resolve(spec(tmp_path, command, *args), {**ENVIRON, "HOME": str(tmp_path / "home")}))
    assert resolved.argv == [sys.executable, "-I", str(script.resolve())]
    assert resolved.replaces == taken
    assert resolved.files[-1] == str(library.resolve() / "tool_pkg")
    assert resolved.package == "pypi:tool-pkg@1.0.0"


def test_a_python_tool_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    outcome = resolve(spec(tmp_path, "uvx", "nothing-here"), {**ENVIRON, "HOME": str(tmp_path)})
    assert "the tool nothing-here is not installed" in why(outcome)


def test_the_long_way_installers_name_an_interpreter_is_understood(tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text(f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\nimport sys\n")
    script.chmod(0o755)
    assert found(resolve(spec(tmp_path, str(script)), ENVIRON)).argv == [
        sys.executable,
        "-I",
        str(script.resolve()),
    ]


def test_an_interpreter_beside_its_script_is_understood(tmp_path: Path) -> None:
    script, python = tmp_path / "tool", tmp_path / "python"
    python.symlink_to(sys.executable)
    line = """'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"\n' '''\n"""
    script.write_text(f"#!/bin/sh\n{line}import sys\n")
    script.chmod(0o755)
    assert found(resolve(spec(tmp_path, str(script)), ENVIRON)).argv == [str(python), "-I", str(script)]
    script.write_text(f"#!/bin/sh\n{line.replace('/', '/../')}import sys\n")
    assert "no shell is ever run" in why(resolve(spec(tmp_path, str(script)), ENVIRON))


# --- anything else ----------------------------------------------------------------------------------------


def test_a_script_given_to_an_interpreter_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("serve()")
    resolved = found(resolve(spec(tmp_path, sys.executable, "-u", "server.py", "--x"), ENVIRON))
    assert resolved.argv == [sys.executable, "-u", "-I", str((tmp_path / "server.py").resolve())]
    assert resolved.replaces == 2


def test_a_binary_is_itself(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(b"\x7fELF")
    tool.chmod(0o755)
    environ = {**ENVIRON, "PATH": f"relative:{tmp_path}"}
    assert found(resolve(spec(tmp_path, "tool", "--x"), environ)).argv == [str(tool)]


@each_case(
    ("text", "expected"),
    [
        ("#!/bin/sh\necho", "no shell is ever run"),
        ("#!/usr/bin/env bash\necho", "no shell is ever run"),
        ("#!/usr/bin/env -S A=b node\n", "cannot be resolved"),
        ("#!/no/such/interpreter\n", "was not found"),
        ("just text", "neither a binary nor a script"),
    ],
)
def test_a_script_that_no_rule_covers_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text(text)
    tool.chmod(0o755)
    assert expected in why(resolve(spec(tmp_path, str(tool)), ENVIRON))


def test_a_shell_by_another_name_is_a_shell(tmp_path: Path) -> None:
    link = tmp_path / "tool"
    link.symlink_to("/bin/sh")
    assert "is a shell" in why(resolve(spec(tmp_path, str(link)), ENVIRON))


def test_a_container_needs_the_digest_of_its_image(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_bytes(b"\x7fELF")
    docker.chmod(0o755)
    image = "mcp/git@sha256:" + "a" * 64
    resolved = found(resolve(spec(tmp_path, str(docker), "run", "-i", "--rm", "-e", "TOKEN", image), ENVIRON))
    assert resolved.argv == [str(docker)]
    for args, expected in [
        (["run", "-i", "mcp/git"], "digest"),
        (["run", "-e", image, "evil"], "not known to be safe"),
        (["run", "-e", "A=1", "evil"], "digest"),
        (["exec", image], "only `run`"),
        (["run", "--privileged", image], "--privileged"),
        (["run", "--unheard-of", image], "not known to be safe"),
        (["run", "-i"], "names no image"),
    ]:
        assert expected in why(resolve(spec(tmp_path, str(docker), *args), ENVIRON))


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "'no-such-program' was not found" in why(resolve(spec(tmp_path, "no-such-program"), ENVIRON))
