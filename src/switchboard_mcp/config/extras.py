"""Features that are on and whose packages are not installed: each is switched off alone, with a warning."""

from __future__ import annotations

from msgspec import structs

from switchboard_mcp.config.models import Config, ConfigWarning

# Section, setting, a package of the extra, and the extra.
NEEDED = (
    ("programs", "enabled", "pydantic_monty", "programs"),
    ("telemetry", "otel", "opentelemetry.sdk", "otel"),
)


def without_missing_extras(config: Config, source: str, warnings: list[ConfigWarning]) -> Config:
    """Return the config with the features off whose extra is missing, and add a warning for each."""
    for section, setting, package, extra in NEEDED:
        settings = getattr(config, section)
        if getattr(settings, setting) and not is_installed(package):
            from switchboard_mcp.system.installation import install_hint

            message = f"it needs the extra `{extra}`, which is not installed, so it is off."
            remedy = f"{install_hint(extra)} Or set {section}.{setting} to false."
            warnings.append(ConfigWarning(source, f"{section}.{setting}", message, remedy=remedy))
            config = structs.replace(config, **{section: structs.replace(settings, **{setting: False})})
    return config


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    from importlib.util import find_spec  # loaded only if such a feature is on

    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
