"""Reads the `mcp-descriptions.json` of a workspace: texts about its children, by name.

`switchboard` describes the suite tool to hosts, `claude` instructs a model that uses the child. The bundled library has
the same form (`setup.known_servers`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config.documents import Unreadable, find_mistakes, join_key, read_document
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning, SuiteSettings

FILE = "mcp-descriptions.json"


class ChildDescription(Struct, frozen=True):
    """The texts about one child. Other keys are ignored, so entries of the bundled library can be copied."""

    switchboard: str = ""
    claude: str = ""


def read_descriptions(
    folder: str, warnings: list[ConfigWarning] | None = None
) -> dict[str, ChildDescription]:
    """Return the descriptions of a workspace by child. An invalid entry is skipped and added to `warnings`."""
    path = os.path.join(folder, FILE)
    document = read_document(path)
    if document is None:
        return {}
    mistakes: list[tuple[str, str]] = []
    descriptions: dict[str, ChildDescription] = {}
    entries = document.get("mcps") if isinstance(document, dict) else None
    if isinstance(document, Unreadable):
        mistakes.append(("", f"{document.message} The file is ignored."))
    elif not isinstance(entries, dict):
        mistakes.append(("mcps", "expected an object with one member per child. The file is ignored."))
    else:
        for name, entry in entries.items():
            try:
                descriptions[name] = msgspec.convert(entry, ChildDescription)
            except msgspec.ValidationError:
                key = join_key("mcps", name)
                mistakes += (
                    (
                        f"{key}.{mistake.key}" if mistake.key else key,
                        f"{mistake.message} The entry is ignored.",
                    )
                    for mistake in find_mistakes(entry, ChildDescription)
                )
    if warnings is not None:
        warnings.extend(ConfigWarning(path, key, message) for key, message in mistakes)
    return descriptions


def describe_suites(
    config: Config, descriptions: Mapping[str, ChildDescription], children: Iterable[ChildSpec]
) -> Config:
    """Return the config in which suites without a `description` have that of the workspace's file."""
    described: dict[str, SuiteSettings] = {}
    for spec in children:
        suite = config.suites.get(spec.name) or SuiteSettings()
        entry = descriptions.get(spec.name)
        if entry is not None and entry.switchboard.strip() and not suite.description:
            described[spec.name] = replace(suite, description=entry.switchboard.strip())
    return replace(config, suites=config.suites | described) if described else config
