"""Package runners (`npx`, `uvx` and the like) in two phases: download with network, then run without it.

The first phase installs the package into a folder of the child, in a sandbox that may write this folder alone and has
the network, but none of the child's variables. The second runs the installed program in the child's own sandbox, in
which the folder is read-only. What is installed stays until it is updated, so later starts need no network.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable

import msgspec
from msgspec import Struct

from switchboard_mcp.config.sandbox import BASIC_ENV, PRESETS, SandboxWords
from switchboard_mcp.policy.launch.packages import PackageRequest, parse_runner, program_in
from switchboard_mcp.policy.launch.program_resolution import Unresolved
from switchboard_mcp.policy.launch.text_rules import program_name
from switchboard_mcp.sandbox.plan import Launch
from switchboard_mcp.sandbox.programs import which

STAMP = "installed.json"
# Variables that say where packages come from. Tokens for a registry are among them, so the child does not get them.
INSTALL_ENV = (
    *BASIC_ENV, "*_PROXY", "*_proxy", "ALL_PROXY", "BUN_*", "NODE_*", "NPM_*", "PIPX_*", "PIP_*", "PNPM_*", "UV_*",
    "npm_config_*",
)  # fmt: skip
# Files of the user that name the registry, by the variable that leads to them.
USER_FILES = {
    "npm_config_userconfig": ".npmrc",
    "PIP_CONFIG_FILE": ".config/pip/pip.conf",
    "UV_CONFIG_FILE": ".config/uv/uv.toml",
}


class Installation(Struct, frozen=True):
    """A package to install: the command of the first phase, and how its program is found in the folder."""

    request: PackageRequest
    folder: str
    launch: Launch
    words: SandboxWords
    rest: list[str]
    find: Callable[[], str]


class _Stamp(Struct, frozen=True):
    words: list[str]  # of the command line that it was installed for
    program: str


def find_installation(launch: Launch, folder: str, home: str) -> Installation | None:
    """Return the installation that a command line needs; None if it is no package runner, or has flags of its own."""
    runner = program_name(launch.argv[0])
    parsed = parse_runner(runner, launch.argv[1:])
    if parsed is None or isinstance(parsed, Unresolved):
        return None
    request, replaces = parsed
    command = _install_command(runner, launch, request, folder)
    if command is None:
        return None
    argv, own_env = command
    words = msgspec.structs.replace(
        PRESETS["workspace"],
        write=["${cache}"],
        protect=[],
        network="all",
        env=list(INSTALL_ENV),
        read=[os.path.join(home, name) for name in USER_FILES.values()] if home else [],
    )
    env = {**launch.env, **_user_files(home), **own_env}
    return Installation(
        request,
        folder,
        Launch(argv, env, folder),
        words,
        launch.argv[1 + replaces :],
        lambda: program_in(request, folder, runner),
    )


def _install_command(
    runner: str, launch: Launch, request: PackageRequest, folder: str
) -> tuple[list[str], dict[str, str]] | None:
    """Return the command that installs a package into a folder, and the variables that it needs."""

    def beside(name: str) -> str:
        """Return a program of the same installation as the runner, or from PATH."""
        path = which(launch.argv[0], launch.env.get("PATH", os.defpath), launch.cwd)
        own = os.path.join(os.path.dirname(path), name)
        return own if path and os.path.exists(own) else name

    package = request.spec
    if runner in ("npx", "npm", "yarn"):
        # One more attempt after a second: by default npm tries for minutes if there is no network.
        retries = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
        flags = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", *retries]
        return [beside("npm"), "install", "--prefix", folder, *flags, package], {}
    if runner in ("pnpx", "pnpm"):
        return [beside("pnpm"), "add", "--dir", folder, package], {}
    if runner == "bunx":
        return [beside("bun"), "add", "--cwd", folder, package], {}
    if runner in ("uvx", "uv"):
        places = {
            "TOOL_DIR": "tools",
            "TOOL_BIN_DIR": "bin",
            "CACHE_DIR": "cache",
            "PYTHON_INSTALL_DIR": "python",
        }
        env = {f"UV_{name}": os.path.join(folder, place) for name, place in places.items()}
        return [beside("uv"), "tool", "install", "--force", package], env
    if runner == "pipx":
        env = {"PIPX_HOME": folder, "PIPX_BIN_DIR": os.path.join(folder, "bin")}
        return [launch.argv[0], "install", "--force", package], env
    return None


def _user_files(home: str) -> dict[str, str]:
    found = {variable: os.path.join(home, name) for variable, name in USER_FILES.items()}
    return {variable: path for variable, path in found.items() if home and os.path.isfile(path)}


def installed_program(installation: Installation) -> str:
    """Return the installed program, or an empty string if the package has to be installed first."""
    try:
        with open(os.path.join(installation.folder, STAMP), "rb") as file:
            stamp = msgspec.json.decode(file.read(), type=_Stamp)
    except (OSError, msgspec.MsgspecError):
        return ""
    same = stamp.words == installation.launch.argv and os.path.isfile(stamp.program)
    return stamp.program if same else ""


def lock(installation: Installation) -> int:
    """Wait until no other process installs into this folder; closing the returned descriptor ends it."""
    os.makedirs(os.path.dirname(installation.folder), 0o700, exist_ok=True)
    descriptor = os.open(f"{installation.folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def begin(installation: Installation) -> None:
    """Empty the folder: a part of an earlier installation is of no use."""
    shutil.rmtree(installation.folder, ignore_errors=True)
    os.makedirs(installation.folder, 0o700, exist_ok=True)


def finish(installation: Installation) -> str:
    """Record the installed program, and return it; or an empty string if the package has no such program."""
    program = installation.find()
    if program:
        stamp = msgspec.json.encode(_Stamp(installation.launch.argv, program))
        with open(os.path.join(installation.folder, STAMP), "wb") as file:
            file.write(stamp)
    return program


def second_phase(
    installation: Installation, program: str, launch: Launch, words: SandboxWords
) -> tuple[Launch, SandboxWords]:
    """Return the launch of the installed program, and the child's sandbox in which the folder may be read."""
    read = [*words.read, installation.folder]
    inside = msgspec.structs.replace(launch, argv=[program, *installation.rest])
    return inside, msgspec.structs.replace(words, read=read)
