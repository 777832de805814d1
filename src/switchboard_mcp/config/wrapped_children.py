"""Locates wrapped children (`switchboard wrap`), and adjusts the config for them.

The folder of a wrapped child contains `.mcp.json`, which starts the wrapper, `CLAUDE.md`, which describes the child to
the model, and `original/.mcp.json`. The original runs in the same working directory as before. A child that is defined
elsewhere, for example in an `mcpServers` map, stays there; its wrapper has a separate folder and replaces it.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.config.sections import ASK_SUBTOOL, Expose
from switchboard_mcp.suites.suite_names import suite_names

FILE, ROLE_FILE = ".mcp.json", "CLAUDE.md"
ORIGINAL = "original/.mcp.json"
MAX_ROLE_BYTES = 100_000


def adjust_for_wrappers(config: Config, children: list[ChildSpec]) -> Config:
    """Return the config adjusted for wrappers: its rules name the original's subtools, which the wrapper enforces.

    An allow list of a suite gains the wrapper's own subtool. A wrapper does not know its caller, so a profile that
    denies some of the original's subtools cannot use the wrapper, unless it allows it by name.
    """
    wrapped = {spec.name for spec in children if spec.wraps}
    suites = {
        name: replace(suite, expose=replace(suite.expose, allow=[*suite.expose.allow, ASK_SUBTOOL]))
        for name, suite in config.suites.items()
        if name in wrapped and suite.expose.allow
    }
    configured = [
        (spec.name, suite.suite_name if (suite := config.suites.get(spec.name)) else "") for spec in children
    ]
    names = suite_names(configured)
    keys = wrapped | {names[name] for name in wrapped}
    profiles = {
        name: replace(
            profile,
            expose={key: _deny_ask(rule) if key in keys else rule for key, rule in profile.expose.items()},
        )
        for name, profile in config.profiles.items()
    }
    return replace(config, suites=config.suites | suites, profiles=profiles)


def _deny_ask(rule: Expose) -> Expose:
    return (
        replace(rule, deny=[*rule.deny, ASK_SUBTOOL]) if rule.deny and ASK_SUBTOOL not in rule.allow else rule
    )


def wrapper_folder(workspace: str, spec: ChildSpec) -> str:
    """Return the folder of a child's wrapper, whether or not it exists."""
    folder, name = os.path.split(spec.source)
    if not spec.key and name == FILE and folder != workspace:
        return os.path.dirname(folder) if spec.source.endswith(os.sep + ORIGINAL) else folder
    return os.path.join(workspace, ".switchboard", "mcps", spec.name)


def read_role(folder: str) -> str:
    """Return the description of a child for the model, or an empty string."""
    try:
        with open(os.path.join(folder, ROLE_FILE), "rb") as file:
            return file.read(MAX_ROLE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
