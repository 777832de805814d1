"""Workflow definitions: the bundled ones, and the user's in `.switchboard/workflows/`.

A user's definition overrides a bundled one of the same name. An invalid one is reported by file and key when it is
used, and does not affect the others. Blocking; call in threads.
"""

from __future__ import annotations

import os

import msgspec

from switchboard_mcp.config.documents import Unreadable, find_mistakes, read_document
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.workflows.definitions import Definition
from switchboard_mcp.mail.workflows.rules import definition_errors

FOLDER = "workflows"
BUNDLED = os.path.join(os.path.dirname(__file__), "bundled")
_ENDINGS = (".toml", ".json")


def bundled() -> dict[str, Definition | Failure]:
    """Return the bundled definitions by name."""
    return _in_folder(BUNDLED, "")


def available(mail_folder: str) -> dict[str, Definition | Failure]:
    """Return every definition of a workspace, or what is wrong with it; `mail_folder` is its `.switchboard`."""
    shown = os.path.join(os.path.basename(mail_folder), FOLDER)
    return bundled() | _in_folder(os.path.join(mail_folder, FOLDER), shown)


def _in_folder(folder: str, shown: str) -> dict[str, Definition | Failure]:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        return {FOLDER: _invalid(f"{shown} cannot be read ({problem.strerror}).")}
    definitions: dict[str, Definition | Failure] = {}
    for file in names:
        name, ending = os.path.splitext(file)
        if ending not in _ENDINGS or name.startswith("."):
            continue
        where = os.path.join(shown, file)
        if name in definitions:
            definitions[name] = _invalid(
                f"{where}: '{name}' is already defined in another format. Remove one."
            )
        else:
            definitions[name] = _read(os.path.join(folder, file), where, name)
    return definitions


def _read(path: str, shown: str, name: str) -> Definition | Failure:
    document = read_document(path)
    if document is None:
        return _invalid(f"{shown}: there is no such file.")
    if isinstance(document, Unreadable):
        return _invalid(f"{shown} {document.message}")
    if isinstance(document, dict):
        document.pop("$schema", None)
        document.setdefault("name", name)
    try:
        definition = msgspec.convert(document, Definition)
    except msgspec.ValidationError as problem:
        return _shape_errors(document, shown, str(problem))
    if definition.name != name:
        return _invalid(f"{shown}: name: must be '{name}', like the file name.")
    errors = definition_errors(definition)
    if errors:
        return _invalid("\n".join(f"{shown}: {error.key}: {error.message}" for error in errors))
    return definition


def _shape_errors(document: object, shown: str, reason: str) -> Failure:
    mistakes = find_mistakes(document, Definition)
    lines = [f"{shown}: {mistake.key}: {mistake.message}" for mistake in mistakes]
    return _invalid("\n".join(lines) or f"{shown}: {reason}")


def _invalid(message: str) -> Failure:
    return failure("mail_workflow_invalid", message)
