"""Describes sandboxes for people: what this system offers, and what each child may do and which promises hold."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from switchboard_mcp.config.models import ChildSpec, Workspace, sandbox_of
from switchboard_mcp.config.sandbox import SandboxWords, describe_network
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.decisive_files import decisive_files
from switchboard_mcp.sandbox.installations import (
    Installation,
    find_installation,
    installed_program,
)
from switchboard_mcp.sandbox.plan import Launch, Places, SandboxPlan, make_plan, packages_folder
from switchboard_mcp.sandbox.promises import Promise, Support, mechanism_of, promises
from switchboard_mcp.sandbox.workspace_size import too_wide


class SandboxReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The sandbox of one child on this system."""

    child: str
    words: SandboxWords
    promises: list[Promise]
    read: list[str] = []
    write: list[str] = []
    protect: list[str] = []
    refused: str = ""
    """Why it does not start in this sandbox."""
    missing: list[str] = []
    """Listed paths that do not exist, or that are links which the child could change: nothing is allowed there."""
    env: list[str] = []
    """Names of the variables that the child gets."""
    proposed: dict[str, str] = {}
    """Sources of packages that are installed as editable, by name. It may read them once they are in `files.read`."""
    package: str = ""
    """The package of a package runner, and if it is installed. Only its installation has the network."""

    @property
    def broken(self) -> list[Promise]:
        """The promises that do not hold here; all of them for a child that does not start."""
        return [promise for promise in self.promises if self.refused or not promise.holds]


def describe_child(
    workspace: Workspace, spec: ChildSpec, environ: Mapping[str, str], places: Places, support: Support
) -> SandboxReport:
    """Return the report of one child."""
    words = sandbox_of(spec.name, workspace.config)
    if not words.is_on or spec.kind != "stdio":
        return SandboxReport(spec.name, words, [])
    expanded = expand(spec, environ)
    if isinstance(expanded, Failure):
        return SandboxReport(spec.name, words, promises(words, support))
    installation = installation_of(expanded, environ, places)
    package = ""
    if installation is not None and mechanism_of(words, support) in ("linux", "bubblewrap"):
        program = installed_program(installation)
        package = f"{installation.request.spec}, {'installed' if program else 'not installed yet'}"
        if program:
            expanded = structs.replace(expanded, command=program, args=installation.rest)
            words = structs.replace(words, read=[*words.read, installation.folder])
    plan = plan_of(words, expanded, environ, places, support, decisive_files(workspace, environ))
    listed = (*plan.read, *plan.write)
    missing = [path for path in listed if not os.path.lexists(path) and path not in plan.folders]
    missing += plan.dropped
    return SandboxReport(
        spec.name,
        words,
        plan.promises,
        read=[path for path in plan.read if path not in missing],
        write=[path for path in plan.write if path not in missing],
        protect=plan.protect,
        missing=missing,
        env=sorted(plan.launch.env),
        proposed=plan.editable,
        package=package,
        refused=refused.message if (refused := too_wide(spec.name, words, places)) is not None else "",
    )


def installation_of(spec: ChildSpec, environ: Mapping[str, str], places: Places) -> Installation | None:
    """Return the installation of a child whose command is a package runner, or None."""
    launch = Launch([spec.command, *spec.args], {**environ, **spec.env}, spec.cwd)
    return find_installation(launch, packages_folder(places), places.home)


def plan_of(
    words: SandboxWords,
    spec: ChildSpec,
    environ: Mapping[str, str],
    places: Places,
    support: Support,
    decisive: Sequence[str] = (),
) -> SandboxPlan:
    """Return the plan of a child whose variables are expanded."""
    env = {**environ, **spec.env}
    launch = Launch([spec.command, *spec.args], env, spec.cwd)
    inherited = env.keys() - spec.env.keys()
    return make_plan(words, launch, inherited, places, support, os.uname().machine, (), decisive)


def summary(words: SandboxWords) -> str:
    """Return a sandbox in a few words."""
    return "off" if not words.is_on else f"{words.preset}, network {describe_network(words)}"
