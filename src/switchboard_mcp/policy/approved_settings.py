"""Approval of settings in governed mode: those that are not the developer's to decide, by the checksum of each section.

`config.models.SETTING_OWNERS` says which settings these are. A section is compared as it is written in the config file,
without settings at their defaults: a new version of Switchboard that adds a setting changes no checksum. A section that
is not approved prevents the start; the section of one suite makes its child absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256

import msgspec
from msgspec import Struct, structs

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.files.approvals import Approvals
from switchboard_mcp.config.models import SETTING_OWNERS, Config, SuiteSettings, Workspace
from switchboard_mcp.errors import Failure, failure, shell_word
from switchboard_mcp.redaction.redactor import Redactor, is_secret_name

COMMAND = "switchboard approve --settings"
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*\}")
# Governed mode itself needs no approval: it allows less than open mode.
UNAPPROVED_DEFAULTS: dict[str, object] = {"governance": {"mode": "governed"}}


class SectionStatus(Struct, frozen=True, kw_only=True):
    """One section of the config, or one suite: its settings that are not at their defaults, and their approval.

    The state is `approved`, `changed`, `not approved`, `unset` (there is nothing to approve) or `unused` (an approval
    for a suite that does not exist). `child` is empty unless it is a suite.
    """

    name: str
    child: str = ""
    value: object
    sha256: str
    state: str

    @property
    def allowed(self) -> bool:
        """True unless its settings may not be used."""
        return self.state not in ("changed", "not approved")


def section_statuses(workspace: Workspace, approvals: Approvals) -> list[SectionStatus]:
    """Return the status of every section, in the order of the config, then of every suite and unused approval."""
    statuses = [*_top_statuses(workspace, approvals), *_suite_statuses(workspace, approvals)]
    names = {status.name for status in statuses}
    return statuses + [
        SectionStatus(name=name, value={}, sha256=digest, state="unused")
        for name, digest in sorted(approvals.settings.items())
        if name not in names
    ]


def _top_statuses(workspace: Workspace, approvals: Approvals) -> list[SectionStatus]:
    values = sections(workspace.written_config)
    return [_status(name, value, approvals) for name, value in values.items()]


def _suite_statuses(workspace: Workspace, approvals: Approvals) -> list[SectionStatus]:
    config = workspace.written_config
    children = {*config.suites, *(spec.name for spec in workspace.children), *workspace.absent}
    return [suite_status(config, child, approvals) for child in sorted(children)]


def suite_status(config: Config, child: str, approvals: Approvals) -> SectionStatus:
    """Return the status of the settings of one suite, by its child."""
    value = _suite(config.suites.get(child) or SuiteSettings())
    return _status(join_key("suites", child), value, approvals, child)


def _status(name: str, value: object, approvals: Approvals, child: str = "") -> SectionStatus:
    approved, digest = approvals.settings.get(name), _digest(value)
    if approved is not None:
        state = "approved" if approved == digest else "changed"
    else:
        state = "unset" if value in (UNAPPROVED_DEFAULTS.get(name), {}, [], "") else "not approved"
    return SectionStatus(name=name, child=child, value=value, sha256=digest, state=state)


def sections(config: Config) -> dict[str, object]:
    """Return the sections that need an approval, except suites, without settings at their defaults."""
    names = zip(Config.__struct_fields__, Config.__struct_encode_fields__, strict=True)
    return {
        encoded: without_defaults(getattr(config, name))
        for name, encoded in names
        if SETTING_OWNERS.get(name) == "approver"
    }


def approve_settings(approvals: Approvals, statuses: Iterable[SectionStatus]) -> Approvals:
    """Return the approvals with these sections approved as they are now; unused approvals are removed."""
    statuses = list(statuses)
    unused = {status.name for status in statuses if status.state == "unused"}
    kept = {name: digest for name, digest in approvals.settings.items() if name not in unused}
    fresh = {status.name: status.sha256 for status in statuses if status.name not in unused}
    return structs.replace(approvals, settings=kept | fresh)


def find_unapproved(workspace: Workspace, approvals: Approvals, file: str) -> Failure | None:
    """Return the failure if a section, except of a suite, is not as approved, or None."""
    statuses = [status for status in _top_statuses(workspace, approvals) if not status.allowed]
    if not statuses:
        return None
    names = ", ".join(f"{status.name} ({status.state})" for status in statuses)
    message = f"{workspace.source}: these settings need an approval in {file}: {names}."
    return failure("settings_not_approved", message, hint=_hint(approvals, COMMAND))


def unapproved_suites(workspace: Workspace, approvals: Approvals, file: str) -> dict[str, Failure]:
    """Return the failure of each child whose suite settings are not as approved."""
    return {
        status.child: failure(
            "child_not_allowed",
            f"Child '{status.child}': its settings ({workspace.source}: {status.name}) need an approval in {file} "
            f"({status.state}).",
            child=status.child,
            hint=_hint(approvals, f"switchboard approve {shell_word(status.child)}", COMMAND),
        )
        for status in _suite_statuses(workspace, approvals)
        if not status.allowed
    }


def find_left_governed_mode(workspace: Workspace, approvals: Approvals, file: str) -> Failure | None:
    """Return the failure if a config leaves governed mode although its settings are approved for it, or None."""
    if workspace.written_config.governance.mode != "open" or "governance" not in approvals.settings:
        return None
    return failure(
        "settings_not_approved",
        f"{workspace.source or workspace.folder}: governance.mode is `open`, but {file} approves governed mode.",
        hint=f"Restore `governed`; or a person who may approve children runs `{COMMAND} --revoke`.",
    )


def _hint(approvals: Approvals, *commands: str) -> str:
    choice = " or ".join(f"`{command}`" for command in commands)
    is_old = approvals.names() and not approvals.settings
    since = "The approvals are of a version that did not approve settings. " if is_old else ""
    return f"{since}A person who may approve children reviews them and runs {choice}."


def settings_in(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield every setting of a section by its key."""
    if isinstance(value, Mapping) and value:
        for name, own in value.items():
            yield from settings_in(own, join_key(key, str(name)))
    else:
        yield key, value


def find_written_secret(statuses: Iterable[SectionStatus]) -> str:
    """Return the key of a secret that is written out, or an empty string: its checksum in git could be guessed."""
    mask = Redactor().redact_text
    for status in statuses:
        for key, value in settings_in(status.value, status.name):
            name = key.rpartition(".")[2]
            is_token = key.startswith("http.tokens.") and name not in ("profile", "dashboard")
            text = _REFERENCE.sub("", value) if isinstance(value, str) else str(value)
            if mask(text) != text or (isinstance(value, str) and text and (is_token or is_secret_name(name))):
                return key
    return ""


def _suite(suite: SuiteSettings) -> object:
    """Return the settings of a suite that need an approval."""
    return without_defaults(suite, lambda name: SETTING_OWNERS[f"suites.{name}"] == "approver")


def without_defaults(value: object, includes: Callable[[str], bool] = lambda _: True) -> object:
    """Return a value in the form of JSON, without settings at their defaults, and only the included fields of it."""
    if isinstance(value, Struct):
        kept = ((field, getattr(value, field.name)) for field in _fields(type(value)) if includes(field.name))
        return {
            field.encode_name: without_defaults(own) for field, own in kept if not _is_default(field, own)
        }
    if isinstance(value, Mapping):
        return {key: without_defaults(own) for key, own in value.items()}
    return [without_defaults(own) for own in value] if isinstance(value, list) else value


@cache
def _fields(model: type[Struct]) -> tuple[structs.FieldInfo, ...]:
    return structs.fields(model)  # slow: it evaluates the annotations


def _is_default(field: structs.FieldInfo, value: object) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return bool(value == field.default) and type(value) is type(field.default)


def _digest(value: object) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
