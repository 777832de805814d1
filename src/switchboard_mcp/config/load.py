"""Loads a workspace: its configuration file with defaults, and its children.

Decides which file is used and reports mistakes in it. `discover` finds the children.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from switchboard_mcp.config import sections
from switchboard_mcp.config.agent_names import token_name_problem
from switchboard_mcp.config.discover import discover
from switchboard_mcp.config.documents import Unreadable, drop_keys, find_mistakes, read_document, rename_keys
from switchboard_mcp.config.extras import without_missing_extras
from switchboard_mcp.config.files.descriptions import describe_suites, read_descriptions
from switchboard_mcp.config.models import Config, ConfigWarning, SuiteSettings, UserScope, Workspace
from switchboard_mcp.config.sandbox import sandbox_mistakes
from switchboard_mcp.config.sections import Token
from switchboard_mcp.config.user_scope import find_obstacle, include, keep_names, leave_out
from switchboard_mcp.config.workspace_folder import JSON_NAME as JSON_NAME
from switchboard_mcp.config.workspace_folder import TOML_NAME as TOML_NAME
from switchboard_mcp.config.workspace_folder import WORKSPACE_MARKERS as WORKSPACE_MARKERS
from switchboard_mcp.config.workspace_folder import is_workspace as is_workspace
from switchboard_mcp.config.workspace_folder import nearest_workspace as nearest_workspace
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.suites.fuzzy import did_you_mean
from switchboard_mcp.system.user_folders import user_workspace

# Forms in which other tools keep settings. Switchboard reads none of them, and runs no program to find its settings.
UNSUPPORTED_SUFFIXES = ("js", "cjs", "mjs", "ts", "cts", "mts", "py", "yaml", "yml", "json5", "jsonc")
# Deprecated settings, old to new. Each is accepted for one release, with a warning.
RENAMED_KEYS = {"audit.whenImpossible": "audit.onError", "mail.starvingMs": "mail.unreadWarnMs"}
# Settings of features that were removed, and what to use instead. `*` is any name. Each is ignored, with a warning;
# a restriction is refused.
REMOVED_KEYS = {
    "mail.a2a": "Agents of other systems use the mail tools over MCP, at `/mcp`.",
    "mail.claudeTeams": "Members of a team use the mail tools, as other hosts do.",
    "tasks": "Hosts get the tasks of servers of their own protocol version; other calls wait for their result.",
    "mail.reassign": "The sender and the overseer are told of a deadline that has passed.",
    "sandbox.image": "Sandboxes use the system's own files.",
    "suites.*.sandbox.image": "Sandboxes use the system's own files.",
    "find.learn": "`find` searches by words alone.",
    "find.meaning": "`find` searches by words alone.",
}
REMOVED_RESTRICTIONS = {
    "mail.contacts": "Any agent may write to any other. Use a profile that hides `mail` from clients that must not.",
}


def load_workspace(
    folder: str,
    config_file: str | None,
    environ: Mapping[str, str],
    *,
    originals: bool = False,
    include_user: bool | None = None,
    withhold: bool = True,
) -> Workspace:
    """Load the settings and children of a workspace. Raises `config_invalid` with all mistakes, one per line.

    With `originals`, each wrapped child is replaced by the child it wraps. With `include_user`, the children of the
    user workspace are added; its value is the default of the setting with that name. Unless `withhold` is false,
    what would run before anybody asks for it is off until the user has allowed it.
    """
    folder = os.path.abspath(folder)
    user_folder = user_workspace(environ)
    is_user = _is_same(folder, user_folder)
    # A server of the user works in the project that its host has open.
    project = _load(
        folder, config_file, environ, originals=originals, root=_current_folder() if is_user else ""
    )
    if withhold and not is_user:
        project = _without_untrusted(project, environ)
    if include_user is None or is_user or not user_folder:
        return project
    if not is_workspace(user_folder):
        return msgspec.structs.replace(project, user=UserScope(folder=user_folder))
    reason = find_obstacle(project, user_folder, default=include_user)
    # A project may leave the user's servers out; their names stay his.
    keeps_names = (
        include_user and project.config.include_user is False and project.config.governance.mode == "open"
    )
    if reason and not keeps_names:
        return leave_out(project, user_folder, reason)
    try:
        user = _load(user_folder, None, environ, root=folder)
    except SwitchboardError as problem:
        if reason:
            return leave_out(project, user_folder, reason)
        message = f"the user workspace is not included: {problem.failure.message}"
        left_out = leave_out(project, user_folder, problem.failure.message)
        warning = ConfigWarning(user_folder, "", message)
        return msgspec.structs.replace(left_out, warnings=[*project.warnings, warning])
    return leave_out(keep_names(project, user), user_folder, reason) if reason else include(project, user)


def _without_untrusted(project: Workspace, environ: Mapping[str, str]) -> Workspace:
    """Return the project without what runs by itself and was not allowed. In governed mode the approval is the yes."""
    if project.config.governance.mode != "open":
        return project
    if not _may_run_by_itself(project.config):
        return project
    from switchboard_mcp.config import trust  # few workspaces need it

    return trust.withhold(project, environ)


def _may_run_by_itself(config: Config) -> bool:
    """Return True if a config may have anything that runs before somebody asks for it; looks at no file."""
    suites = config.suites.values()
    return bool(
        config.middleware
        or config.mail.channel
        or config.exposure == "direct"
        or any(suite.middleware or suite.pin or suite.exposure == "direct" for suite in suites)
    )


def _is_same(folder: str, other: str) -> bool:
    return folder == other or (bool(other) and os.path.realpath(folder) == os.path.realpath(other))


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _load(
    folder: str,
    config_file: str | None,
    environ: Mapping[str, str],
    *,
    originals: bool = False,
    root: str = "",
) -> Workspace:
    """Load one workspace. `root` is the value of `${workspaceFolder}`, by default the folder of the workspace."""
    if not os.path.isdir(folder):
        raise _invalid(
            f"{folder}: there is no such folder.",
            hint="Name an existing folder with --workspace, or create this one.",
        )
    source = find_config(folder, config_file)
    file_warnings = _unsupported_files(folder) if config_file is None else []
    written = read_config(source, file_warnings) if source else Config()
    config = without_missing_extras(_apply_mail_exposure(written), source, file_warnings)
    children, disabled, warnings = discover(
        folder, config, environ, source=source, originals=originals, root=root
    )
    warnings = file_warnings + warnings
    config = describe_suites(config, read_descriptions(folder, warnings), children)
    if any(spec.wraps for spec in children):
        from switchboard_mcp.config.wrapped_children import (
            adjust_for_wrappers,
        )  # Only needed if children are wrapped.

        config = adjust_for_wrappers(config, children)
    return Workspace(
        folder=folder,
        config=config,
        children=children,
        warnings=warnings,
        source=source,
        written=written,
        disabled=disabled,
    )


def _unsupported_files(folder: str) -> list[ConfigWarning]:
    """Return a warning for each file that looks like a config and is not read."""
    paths = (os.path.join(folder, f"switchboard.config.{suffix}") for suffix in UNSUPPORTED_SUFFIXES)
    message = (
        f"is ignored. Settings are read from {JSON_NAME}, in which comments are allowed, or {TOML_NAME}: "
        "move them there."
    )
    return [ConfigWarning(path, "", message) for path in paths if os.path.exists(path)]


def find_config(folder: str, config_file: str | None) -> str:
    """Return the path of the configuration file, or an empty string.

    `config_file` is relative to the current folder.
    """
    if config_file is not None:
        path = os.path.abspath(config_file)
        if not os.path.exists(path):
            raise _invalid(
                f"{path}: there is no such file.",
                hint="Name an existing file with --config, or omit it.",
            )
        return path
    paths = [path for name in (JSON_NAME, TOML_NAME) if os.path.exists(path := os.path.join(folder, name))]
    if len(paths) > 1:
        raise _invalid(
            f"{folder}: contains both {JSON_NAME} and {TOML_NAME}.",
            hint="Keep the file you want to use, and remove the other.",
        )
    return paths[0] if paths else ""


def read_config(path: str, warnings: list[ConfigWarning] | None = None) -> Config:
    """Read the settings in one file. Deprecated and removed keys are added to `warnings`."""
    document = read_document(path)
    if document is None:
        raise _invalid(f"{path}: there is no such file.")
    if isinstance(document, Unreadable):
        other_form = path.rpartition(".")[2] in UNSUPPORTED_SUFFIXES
        forms = "Settings are read from JSON, in which comments are allowed, or TOML: move them there."
        hint = forms if other_form else "Correct the file, then start again."
        raise _invalid(f"{path}: {document.message}", hint=hint)
    if isinstance(document, dict):
        document.pop("$schema", None)
        if gone := drop_keys(document, REMOVED_RESTRICTIONS):
            raise _invalid("\n".join(f"{path}: {key}: removed. {instead}" for key, instead in gone))
        dropped = drop_keys(document, REMOVED_KEYS)
        outdated = rename_keys(document, RENAMED_KEYS)
        outdated += [(key, f"removed, and ignored. {instead}") for key, instead in dropped]
        if warnings is not None:
            warnings.extend(ConfigWarning(path, key, message) for key, message in outdated)
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as problem:
        raise _invalid_file(path, document, str(problem)) from None
    for name, token in config.http.tokens.items():
        if isinstance(token, Token):
            require_profile(config, token.profile, f"{path}: http.tokens.{name}.profile")
    _check_sandboxes(path, config)
    wrong_name = token_name_problem(config.http.tokens)
    if wrong_name:
        raise _invalid(f"{path}: http.tokens: {wrong_name}")
    return config


def _check_sandboxes(path: str, config: Config) -> None:
    sandboxes = {"sandbox": config.sandbox}
    sandboxes |= {f"suites.{name}.sandbox": suite.sandbox for name, suite in config.suites.items()}
    problems = [
        str(ConfigWarning(path, f"{key}.{place}", message))
        for key, value in sandboxes.items()
        for place, message in sandbox_mistakes(value)
    ]
    if problems:
        raise _invalid("\n".join(problems))


def require_profile(config: Config, name: str, where: str) -> None:
    """Raise `config_invalid` if a profile does not exist. An empty name means no profile."""
    if name and name not in config.profiles:
        raise _invalid(
            f"{where}: there is no profile '{name}'.{did_you_mean(name, config.profiles)}",
            hint="Use one of the names under `profiles` in the config.",
        )


def _apply_mail_exposure(config: Config) -> Config:
    """Copy `mail.exposure` to the suite settings of the mail child."""
    if not config.mail.enabled or config.mail.exposure == "suite":
        return config
    own = msgspec.structs.replace(
        config.suites.get(sections.MAIL_NAME) or SuiteSettings(), exposure=config.mail.exposure
    )
    return msgspec.structs.replace(config, suites={**config.suites, sections.MAIL_NAME: own})


def _invalid_file(path: str, document: object, reason: str) -> SwitchboardError:
    mistakes = find_mistakes(document, Config)
    if not mistakes:
        return _invalid(f"{path}: {reason}")
    return _invalid("\n".join(str(ConfigWarning(path, mistake.key, mistake.message)) for mistake in mistakes))


def _invalid(message: str, hint: str = "") -> SwitchboardError:
    return refused("config_invalid", message, hint=hint)
