"""Keeps values of variables in the system keyring: Secret Service, KWallet, macOS Keychain or another.

The secrets file then has a reference instead of the value: a random identifier, under which the value is stored. It is
new for every value. The package `keyring` is imported on first use. Reading may block while the user types a password.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from importlib import import_module
from shlex import quote
from typing import Any

from switchboard_mcp.config.files.secrets_file import KEYRING_REFERENCE
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.system.installation import install_hint

# Backends that store nothing: the first is chosen if there is no other, the second if the user switched it off.
_UNUSABLE = ("keyring.backends.fail", "keyring.backends.null")


def new_reference() -> str:
    """Return the reference of a value that is about to be stored."""
    return f"@keyring:{secrets.token_hex(16)}"


def load_all(references: Mapping[str, str]) -> dict[str, str] | Failure:
    """Return the values of variables, or the failure of the first that cannot be read."""
    values: dict[str, str] = {}
    for name, reference in references.items():
        try:
            value = open_keyring().get_password(_service(name), _identifier(reference))
        except SwitchboardError as problem:
            cause = problem.failure
            return failure(
                cause.code, f"{name} is in the system keyring. {cause.message}", hint=cause.hint or ""
            )
        except Exception as problem:  # noqa: BLE001 - every backend raises different errors
            return _failed(f"the system keyring did not return {name}", problem)
        if value is None:
            hint = f"Store it again: switchboard secret set {quote(name)}"
            return failure("keyring_unavailable", f"{name} is not in the system keyring any more.", hint=hint)
        values[name] = str(value)
    return values


def save(name: str, reference: str, value: str) -> None:
    """Store the value of a variable."""
    keyring = open_keyring()
    try:
        keyring.set_password(_service(name), _identifier(reference), value)
    except Exception as problem:  # noqa: BLE001
        raise SwitchboardError(_failed(f"The system keyring did not store {name}", problem)) from None


def save_all(values: Mapping[str, tuple[str, str]]) -> None:
    """Store several values, each with its reference. If one is refused, none is kept."""
    for name, (reference, value) in values.items():
        try:
            save(name, reference, value)
        except SwitchboardError:
            delete_all({variable: stored for variable, (stored, _) in values.items()})
            raise


def delete_all(references: Mapping[str, str]) -> list[str]:
    """Delete values; return the variables whose values the keyring did not delete."""
    kept = []
    for name, reference in references.items():
        try:
            open_keyring().delete_password(_service(name), _identifier(reference))
        except Exception:  # noqa: BLE001 - what is left there is useless without its identifier
            kept.append(name)
    return kept


def open_keyring(instead: str = "switchboard secret set NAME --store file") -> Any:
    """Return the backend of the package `keyring`; raises if the package or a backend is missing.

    `instead` is the command that stores secrets in a file.
    """
    try:
        package: Any = import_module("keyring")
    except ImportError:
        message = "The package `keyring` is not installed."
        raise refused("keyring_unavailable", message, hint=install_hint("keyring")) from None
    try:
        backend = package.get_keyring()
    except Exception as problem:  # noqa: BLE001
        raise SwitchboardError(_failed("The system keyring cannot be opened", problem)) from None
    if type(backend).__module__ in _UNUSABLE:
        raise refused(
            "keyring_unavailable",
            "This machine has no system keyring that can be used.",
            hint="Start and unlock one (GNOME Keyring, KWallet, macOS Keychain), or store secrets in a file: "
            + instead,
        )
    return backend


def _service(name: str) -> str:
    return f"switchboard:{name}"


def _identifier(reference: str) -> str:
    match = re.fullmatch(KEYRING_REFERENCE, reference)
    assert match is not None
    return match[1]


def _failed(text: str, problem: Exception) -> Failure:
    reason = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
    return failure("keyring_unavailable", f"{text} ({reason.rstrip('.')}).")
