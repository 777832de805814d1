"""From what a developer configured to what really runs: `npx -y pkg`, `uvx pkg`, `python -m pkg`, a name on the PATH.

Owns which runner is meant; programs are followed in `launch_programs`, packages in `launch_packages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.policy.launch.packages import asked_for, npm_package, python_tool
from switchboard_mcp.policy.launch.programs import Resolved, Search, Unresolved, program
from switchboard_mcp.policy.launch.text_rules import RUNNERS, program_name

# The word that makes a package runner of a package manager.
_VERBS: dict[str, tuple[tuple[str, ...], ...]] = {
    "npx": ((),),
    "pnpx": ((),),
    "bunx": ((),),
    "uvx": ((),),
    "npm": (("exec",), ("x",)),
    "pnpm": (("dlx",),),
    "yarn": (("dlx",),),
    "uv": (("tool", "run"),),
    "pipx": (("run",),),
}
_PYTHON = frozenset(("uvx", "uv", "pipx"))


def resolve(spec: ChildSpec, environ: Mapping[str, str]) -> Resolved | Unresolved:
    """What a child really runs, its variables filled in already."""
    search = Search(spec.cwd, environ)
    name = program_name(spec.command)
    if name in RUNNERS:
        return _runner(name, spec.args, search)
    path = search.program(spec.command)
    if path is None:
        return Unresolved(f"the program '{spec.command}' was not found")
    return program(path, spec.args, search)


def _runner(name: str, args: Sequence[str], search: Search) -> Resolved | Unresolved:
    for verb in _VERBS.get(name, ()):
        if tuple(args[: len(verb)]) == verb:
            break
    else:
        return Unresolved(f"what `{name}` runs cannot be told", "Configure the program itself.")
    asked = asked_for(args[len(verb) :], python=name in _PYTHON)
    if isinstance(asked, Unresolved):
        return asked
    taken = len(verb) + asked.taken
    return python_tool(asked, taken, search) if name in _PYTHON else npm_package(asked, taken, search)
