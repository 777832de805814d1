"""Loads the middleware that the config names. Imported only if there is any.

A name with a colon is `package.module:factory`; any other is an entry point of the group `switchboard_mcp.middleware`.
In governed mode only entry points on `governance.middleware` are loaded, of packages that are installed beside
Switchboard: nothing else is even imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from switchboard_mcp.config.models import Config
from switchboard_mcp.config.sections import MiddlewareUse
from switchboard_mcp.errors import refused
from switchboard_mcp.middleware import Factory, Middleware

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "switchboard_mcp.middleware"


class NamedMiddleware(Struct, frozen=True):
    """A middleware and its name in the config."""

    name: str
    handler: Middleware


class LoadedMiddleware(Struct, frozen=True):
    """The middleware of all suites, and that of single children."""

    all_suites: tuple[NamedMiddleware, ...] = ()
    by_child: dict[str, tuple[NamedMiddleware, ...]] = {}


def load_middleware(config: Config) -> LoadedMiddleware:
    """Load all middleware that the config names. Raises if one cannot be loaded."""
    allowed = frozenset(config.governance.middleware) if config.governance.mode == "governed" else None
    return LoadedMiddleware(
        _load_all(config.middleware, "middleware", allowed),
        {
            child: _load_all(suite.middleware, f"suites.{child}.middleware", allowed)
            for child, suite in config.suites.items()
            if suite.middleware
        },
    )


def _load_all(
    entries: Sequence[str | MiddlewareUse], key: str, allowed: frozenset[str] | None
) -> tuple[NamedMiddleware, ...]:
    return tuple(_load_one(entry, f"{key}[{index}]", allowed) for index, entry in enumerate(entries))


def _load_one(entry: str | MiddlewareUse, key: str, allowed: frozenset[str] | None) -> NamedMiddleware:
    name, options = (entry, {}) if isinstance(entry, str) else (entry.use, dict(entry.options))
    if allowed is not None and name not in allowed:
        hint = "Add it to governance.middleware, or remove it here."
        message = f"{key}: middleware '{name}' is not allowed in governed mode."
        raise refused("config_invalid", message, hint=hint)
    if allowed is not None and ":" in name:
        hint = f"Install it as a package with an entry point in the group {GROUP}, and use the name of that."
        message = f"{key}: middleware '{name}' is a Python path, which governed mode does not load."
        raise refused("config_invalid", message, hint=hint)
    try:
        handler: object = _find_factory(name, installed_only=allowed is not None)(options)
    except Exception as problem:
        message = f"{key}: middleware '{name}' cannot be loaded: {type(problem).__name__}: {problem}."
        raise refused("config_invalid", message) from problem
    if not callable(handler):
        message = f"{key}: the factory '{name}' returned {type(handler).__name__}, which is not callable."
        raise refused("config_invalid", message)
    return NamedMiddleware(name, cast(Middleware, handler))


def _find_factory(name: str, *, installed_only: bool) -> Factory:
    module, colon, attribute = name.partition(":")
    if colon:
        from importlib import import_module

        value: Any = import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
        factory: Factory = value
        return factory
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        if not installed_only or _is_installed(point):
            loaded: Factory = point.load()
            return loaded
    where = " of a package installed beside Switchboard" if installed_only else ""
    raise LookupError(f"there is no such entry point in the group {GROUP}{where}")


def _is_installed(point: EntryPoint) -> bool:
    """Return True if a package is installed beside Switchboard: anyone may put metadata in a working folder."""
    from sysconfig import get_paths

    if point.dist is None:
        return False
    folders = {os.path.realpath(get_paths()[name]) for name in ("purelib", "platlib")}
    return os.path.realpath(str(point.dist.locate_file(""))) in folders
