"""The launch rules of governed mode: turn a child's config entry into an approved launch, or the reason it is refused.

LAUNCH_RULES checks the entry, with its variables expanded, against its approval. These rules look at text and file
permissions only, so a whole workspace is checked at startup. LAUNCH_TIME_RULES and the file hashes read files, so they
are checked at each launch. Rules that need only the text of the entry are in `text_rules`.

Nothing is run here: starting a process needs an `ApprovedLaunch`, and only this module creates one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.files.approvals import (
    Approval,
    Approvals,
    FilePin,
    LocatedApproval,
    PathVariables,
)
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import SandboxSettings, brief
from switchboard_mcp.config.sections import AskSettings, GovernanceSettings
from switchboard_mcp.config.variables import used_variables
from switchboard_mcp.config.wrapped_children import wrapper_folder
from switchboard_mcp.errors import Failure, failure, shell_word
from switchboard_mcp.policy.launch import file_inspector, wrappers
from switchboard_mcp.policy.launch import text_rules as text
from switchboard_mcp.policy.launch.arguments import ArgumentFlaw, find_named
from switchboard_mcp.policy.launch.containers import image_flaw
from switchboard_mcp.policy.launch.file_inspector import FileIdentity, FileInspector
from switchboard_mcp.policy.launch.installed_packages import check_packages, find_packages
from switchboard_mcp.policy.launch.surroundings import PYTHONS, is_isolated
from switchboard_mcp.policy.launch.text_rules import INTERPRETERS, LaunchFault, program_name
from switchboard_mcp.system.star_patterns import matches_stars


class ApprovedLaunch(Struct, frozen=True):
    """A launch that may be performed exactly as described. `files` identify the files that were hashed."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    files: tuple[FileIdentity, ...]


class LaunchRequest(Struct, frozen=True):
    """The input of the launch rules: a config entry, its approval, and the resulting command."""

    spec: ChildSpec
    key: str  # of the approval
    approval: Approval
    governance: GovernanceSettings
    workspace: str
    path_variables: PathVariables
    argv: list[str]
    environ: Mapping[str, str]  # of the child
    inspector: FileInspector

    def first_argument(self) -> int:
        """Return the index in `argv` of the first word that may name any file. Those of an interpreter are known."""
        return len(self.approval.launch) if self.program_names() & INTERPRETERS.keys() else 1

    def program_names(self) -> set[str]:
        """Return the plain names of the program: its own, and that of the file behind a link."""
        return {program_name(self.argv[0]), program_name(self.inspector.resolve(self.argv[0]))}

    def word_key(self, index: int) -> str:
        """Return the key of a word of `argv`, in the approvals or in the config."""
        own = len(self.approval.launch)
        if index < own:
            return self.in_approvals("launch", f"[{index}]")
        return text.argument_key(self.spec, index - own + self.approval.replaces)

    def pinned(self) -> list[str]:
        """Return the paths that are pinned as a whole, in the order of the approvals file."""
        return [self.path_variables.fill(pin.path) for pin in self.approval.files if not pin.names]

    def pins(self) -> list[tuple[FilePin, str]]:
        """Return all pins with their paths, in the order of the approvals file."""
        return [(pin, self.path_variables.fill(pin.path)) for pin in self.approval.files]

    def data(self) -> list[str]:
        """Return the paths that are approved as data, also as they are if the workspace or home is behind a link."""
        variables = self.path_variables
        real = PathVariables(*map(self.inspector.resolve, (variables.workspace, variables.home)))
        return [way.fill(path) for path in self.approval.data for way in (variables, real)]

    def places(self) -> list[str]:
        """Return the folders that programs must be in; empty means anywhere."""
        return [os.path.join(self.workspace, place) for place in self.governance.places]

    def in_approvals(self, *path: str) -> str:
        """Return a key in the approvals file."""
        key = self.key
        for part in path:
            key = f"{key}{part}" if part.startswith("[") else join_key(key, part)
        return key


class ApprovalFault(LaunchFault, frozen=True):
    """A fault in the approval, or in the files that it describes."""


def as_configured(request: LaunchRequest) -> LaunchFault | None:
    """Require the entry to be the approved one."""
    spec, approval = request.spec, request.approval
    changed = "is not what was approved"
    if spec.kind != approval.kind:
        return LaunchFault(join_key(spec.key, "type"), changed)
    if spec.kind != "stdio":
        same = text.origin_of(spec.url) == approval.origin
        return (
            None
            if same
            else LaunchFault(join_key(spec.key, "url"), f"{changed}, which is {approval.origin or 'nothing'}")
        )
    if spec.command != request.path_variables.fill(approval.command):
        return LaunchFault(text.command_key(spec), changed)
    for index, (word, pattern) in enumerate(zip(spec.args, approval.args, strict=False)):
        if not fits(word, pattern):
            return LaunchFault(text.argument_key(spec, index), changed)
    if len(spec.args) != len(approval.args):
        key = text.argument_key(spec, 0).removesuffix("[0]")
        return LaunchFault(key, f"has {len(spec.args)} members; {len(approval.args)} were approved")
    return None


def fits(word: str, pattern: str) -> bool:
    """Return True if an argument matches an approved pattern. A `*` never matches a flag."""
    if "*" not in pattern:
        return word == pattern
    parts = [part.replace("\\*", "*") for part in re.split(r"(?<!\\)\*", pattern)]
    if len(parts) == 1:
        return word == parts[0]
    if not parts[0] and word.startswith("-"):
        return False
    return matches_stars(word, parts)


def known_variables(request: LaunchRequest) -> LaunchFault | None:
    """Require approval of every environment variable by name, and by value if it changes what runs."""
    for name, value in request.spec.env.items() if request.spec.kind == "stdio" else ():
        key = text.variable_key(request.spec, name)
        if text.is_steering(name):
            if request.approval.env_values.get(name) != value:
                message = "changes what runs; it needs an approval of this value (approve --allow-env NAME)"
                return LaunchFault(key, message)
        elif name not in request.approval.env:
            return LaunchFault(key, "is not an approved variable")
    return None


def inside_workspace(request: LaunchRequest) -> LaunchFault | None:
    """Require a working folder inside the workspace, with links resolved."""
    if request.spec.kind == "stdio" and not request.inspector.is_inside(request.spec.cwd, request.workspace):
        return LaunchFault(join_key(request.spec.key, "cwd"), f"is outside the workspace {request.workspace}")
    return None


def absolute(request: LaunchRequest) -> LaunchFault | None:
    """Require normalized absolute paths for the program and every pinned file."""
    if request.spec.kind != "stdio":
        return None
    if not request.approval.launch:
        return ApprovalFault(request.in_approvals("launch"), "names no program")
    for index, path in enumerate([request.argv[0], *(path for _, path in request.pins())]):
        key = (
            request.in_approvals("launch", "[0]")
            if not index
            else request.in_approvals("files", f"[{index - 1}]")
        )
        if not os.path.isabs(path) or os.path.normpath(path) != path:
            return ApprovalFault(key, "is not a normalized absolute path")
    return None


def no_launcher_as_program(request: LaunchRequest) -> LaunchFault | None:
    """Refuse shells, wrappers and package runners, under their name and behind links."""
    if request.spec.kind != "stdio":
        return None
    for path in dict.fromkeys((request.argv[0], request.inspector.resolve(request.argv[0]))):
        name = text.program_name(path)
        launcher = name if name in text.SHELLS | text.RUNNERS else text.runs_others(path)
        if launcher:
            message = f"is {launcher}, which runs other programs"
            return ApprovalFault(request.in_approvals("launch", "[0]"), message)
        flaw = text.interpreter_flaw(name, request.argv[1:])
        if flaw is not None:
            return ApprovalFault(request.in_approvals("launch", f"[{flaw[0] + 1}]"), flaw[1])
        if name in text.CONTAINERS and (problem := image_flaw(request.argv[1:])):
            return ApprovalFault(request.in_approvals("launch"), problem)
    return None


def no_script_as_program(request: LaunchRequest) -> LaunchFault | None:
    """Refuse scripts as the program, and renamed copies of programs that run others. Reads files."""
    if request.spec.kind != "stdio":
        return None
    key, program = request.in_approvals("launch", "[0]"), request.argv[0]
    if file_inspector.is_script(program):
        return ApprovalFault(key, "is a script or a shell; name the interpreter and the script")
    interpreter = not INTERPRETERS.keys().isdisjoint(request.program_names())
    for original in sorted(file_inspector.original_names(program)):
        name = program_name(original)
        if name in text.SHELLS:
            return ApprovalFault(key, f"is a script or a shell ({name}); name the interpreter and the script")
        if not interpreter and (text.runs_others(original) or name in text.RUNNERS | INTERPRETERS.keys()):
            return ApprovalFault(key, f"is {name} under another name, which runs other programs")
    return None


def all_pinned(request: LaunchRequest) -> LaunchFault | None:
    """Require a hash of the program, the script, and every file that the launch names."""
    if request.spec.kind != "stdio":
        return None
    pinned = request.pinned()
    own = len(request.approval.launch)
    for index, word in enumerate(request.argv[:own]):
        if (index == 0 or word.startswith("/")) and word not in pinned:
            return ApprovalFault(
                request.in_approvals("launch", f"[{index}]"), "has no checksum under `files`"
            )
    if text.program_name(request.argv[0]) in text.INTERPRETERS and len(pinned) < 2:
        return ApprovalFault(request.in_approvals("files"), "has no checksum of the script that is run")
    if text.program_name(request.argv[0]) in text.INTERPRETERS and not _script_is_pinned(request, own):
        return ApprovalFault(request.in_approvals("launch"), "does not name the script that is run")
    return None


def _script_is_pinned(request: LaunchRequest, own: int) -> bool:
    words = request.argv[1:own]
    return "-m" in words[:-1] or any(word.startswith("/") and word in request.pinned() for word in words)


def isolated(request: LaunchRequest) -> LaunchFault | None:
    """Require that Python loads no modules from a folder that is not pinned."""
    if request.spec.kind != "stdio" or not request.program_names() & PYTHONS:
        return None
    own = request.argv[1 : len(request.approval.launch)]
    script = next((word for word in own if word.startswith("/")), "")
    if is_isolated(own) or (script and os.path.dirname(script) in request.pinned()):
        return None
    message = "would load modules from a folder that is not pinned; approve the child again"
    return ApprovalFault(request.in_approvals("launch"), message)


def arguments_pinned(request: LaunchRequest) -> LaunchFault | None:
    """Require that every file, folder and program that an argument names is pinned, or approved as data."""
    if request.spec.kind != "stdio":
        return None
    pinned, data = set(request.pinned()), request.data()
    first = request.first_argument()
    for named in find_named(request.argv[0], request.argv[first:], request.spec.cwd, request.environ):
        if isinstance(named, ArgumentFlaw):
            return LaunchFault(request.word_key(first + named.index), named.why)
        if named.path not in pinned and not named.is_data(data):
            real = os.path.realpath(named.path)
            link = f" (a link to {real})" if real != named.path else ""
            message = f"names {named.path}{link}, which is neither pinned nor approved as data"
            return LaunchFault(request.word_key(first + named.index), message)
    return None


def safe_files(request: LaunchRequest) -> LaunchFault | None:
    """Require pinned files that only root and we can change, in the allowed folders."""
    for index, (pin, path) in enumerate(request.pins()):
        key = request.in_approvals("files", f"[{index}]")
        # Startup files of an interpreter are where it looks for them.
        if problem := request.inspector.find_flaw(path, places=() if pin.names else request.places()):
            return ApprovalFault(key, f"{path} {problem}")
        if request.inspector.resolve(path) != (request.path_variables.fill(pin.real) or path):
            return ApprovalFault(key, f"{path} links to a different file than was approved")
    return None


def safe_trees(request: LaunchRequest) -> LaunchFault | None:
    """Require that only root and we can change anything in pinned folders and in the libraries next to them."""
    inspector = request.inspector
    for index, (pin, path) in enumerate(request.pins()):
        key, library = request.in_approvals("files", f"[{index}]"), library_folder(f"{path}/")
        problem = inspector.find_names_flaw(path, pin.names) if pin.names else inspector.find_tree_flaw(path)
        if problem:
            return ApprovalFault(key, f"{path} {problem}")
        if library and (problem := inspector.find_tree_flaw(library)):
            return ApprovalFault(key, f"{library} {problem}")
    return None


def packages_pinned(request: LaunchRequest) -> LaunchFault | None:
    """Require a checksum of all packages that are installed beside what runs."""
    if request.spec.kind != "stdio":
        return None
    own = request.argv[: len(request.approval.launch)]
    pinned = {path for pin, path in request.pins() if pin.installed}
    for folder in find_packages(own, request.pinned()).folders:
        if folder not in pinned:
            message = f"has no checksum of the packages in {folder}; approve the child again"
            return ApprovalFault(request.in_approvals("files"), message)
    return None


def library_folder(path: str) -> str:
    """Return the folder of installed packages that a path is in, or an empty string."""
    for mark in ("/node_modules/", "/site-packages/", "/dist-packages/"):
        before, separator, _ = path.rpartition(mark)
        if separator:
            return f"{before}{mark}".rstrip("/")
    return ""


def find_sandbox_fault(entry: LocatedApproval, sandbox: SandboxSettings) -> LaunchFault | None:
    """Return the fault if the sandbox of the config is not the approved one, or None."""
    approved, key = entry.approval.sandbox, join_key(entry.key, "sandbox")
    if approved == sandbox:
        return None
    now = brief(sandbox)
    if approved is None:
        message = f"is missing, since an earlier version approved it without a sandbox; it would run in {now}"
        return ApprovalFault(key, message)
    return ApprovalFault(key, f"is {brief(approved)}, but the config sets {now}")


LaunchRule = Callable[[LaunchRequest], LaunchFault | None]
LAUNCH_RULES: tuple[LaunchRule, ...] = (
    as_configured,
    known_variables,
    inside_workspace,
    absolute,
    no_launcher_as_program,
    all_pinned,
    isolated,
    arguments_pinned,
    safe_files,
)
LAUNCH_TIME_RULES: tuple[LaunchRule, ...] = (no_script_as_program, safe_trees, packages_pinned)


class LaunchPolicy(Struct, frozen=True):
    """Decides launches by the approvals of one workspace, read from `file`."""

    approvals: Approvals
    file: str
    governance: GovernanceSettings
    workspace: str
    path_variables: PathVariables
    environ: Mapping[str, str]
    ask: AskSettings = AskSettings()
    config: str = ""  # the config file
    platform: str = ""
    unapproved_suites: Mapping[str, Failure] = {}  # by child
    sandbox_of: Callable[[str], SandboxSettings] = lambda _: SandboxSettings(preset="workspace")  # by child
    # Read packages whole, instead of comparing the status of their files with the last reading.
    reads_packages: bool = False

    def check(self, spec: ChildSpec, inspector: FileInspector | None = None) -> Failure | None:
        """Return the failure if the child may not run, or None. Does not read the pinned files."""
        return (
            self._check_launch(spec, inspector)
            or self.unapproved_suites.get(spec.name)
            or self._check_sandbox(spec)
        )

    def _check_sandbox(self, spec: ChildSpec) -> Failure | None:
        entry = None if spec.wraps or spec.kind != "stdio" else self.approvals.find(spec.name, self.platform)
        fault = None if entry is None else find_sandbox_fault(entry, self.sandbox_of(spec.name))
        return None if fault is None else self.refusal(spec, fault)

    def _check_launch(self, spec: ChildSpec, inspector: FileInspector | None) -> Failure | None:
        if spec.wraps:
            return self.check_ask(spec)
        fault = text.find_text_fault(spec)
        if fault is not None:
            return self.refusal(spec, fault)
        entry = self.approvals.find(spec.name, self.platform)
        if entry is None:
            return self._not_allowed(spec)
        return self._refused(self._request(spec, entry, inspector or FileInspector()), LAUNCH_RULES)

    def check_variables(self, spec: ChildSpec) -> Failure | None:
        """Return the failure if the entry references a variable that is not approved: it might be another's secret."""
        entry = self.approvals.find(spec.name, self.platform)
        approved = entry.approval.variables if entry is not None and not spec.wraps else None
        for reference in used_variables(spec):
            if approved is not None and reference.variable not in approved:
                message = f"references {reference.variable}, which is not an approved variable"
                return self.refusal(spec, LaunchFault(reference.key, message))
        return None

    def approve(self, spec: ChildSpec) -> ApprovedLaunch | Failure:
        """Return the approved launch of a child with expanded variables. Hashes the pinned files, which is slow."""
        problem = self.check(spec)
        if problem is not None:
            return problem
        if spec.wraps:
            argv = wrappers.argv(spec.name, self.workspace, self.config)
            return ApprovedLaunch(argv, dict(self.environ), self.workspace, wrappers.interpreter_files())
        entry = self.approvals.find(spec.name, self.platform)
        assert entry is not None  # otherwise refused above
        request = self._request(spec, entry, FileInspector())
        problem = self._refused(request, LAUNCH_TIME_RULES)
        if problem is not None:
            return problem
        files: list[FileIdentity] = []
        for index, (pin, path) in enumerate(request.pins()):
            key = request.in_approvals("files", f"[{index}]", "sha256")
            try:
                if pin.installed:
                    hashed = check_packages(path, self.environ, whole=self.reads_packages)
                else:
                    hashed = file_inspector.hash_path(path, tuple(pin.names))
            except OSError as error:
                where = error.filename or path
                return self.refusal(spec, ApprovalFault(key, f"{where}: {error.strerror}"))
            if hashed.sha256 != pin.sha256:
                where = f"{', '.join(pin.names)} in {path}" if pin.names else path
                message = f"{where} is not what was approved (now {hashed.sha256[:12]}…, approved {pin.sha256[:12]}…)"
                return self.refusal(spec, ApprovalFault(key, message))
            files += hashed.files
        return ApprovedLaunch(request.argv, self.environment(spec), spec.cwd, tuple(files))

    def check_ask(self, spec: ChildSpec) -> Failure | None:
        """Return the failure if natural language may not be turned into calls of a child, or None."""
        entry = self.approvals.find(spec.name, self.platform)
        if entry is None:
            return self._not_allowed(spec)
        why = wrappers.find_flaw(spec.name, entry.approval, self.ask, wrapper_folder(self.workspace, spec))
        if not why:
            return None
        return failure(
            "child_not_allowed",
            f"Child '{spec.name}' ({spec.source}) may not be asked in natural language: {why} ({self.file}).",
            child=spec.name,
            hint=f"A person who may approve children runs `switchboard approve {shell_word(spec.name)} --ask`; "
            f"`switchboard unwrap {shell_word(spec.name)}` restores its subtools.",
        )

    def check_unchanged(self, spec: ChildSpec, launched: ApprovedLaunch) -> Failure | None:
        """Return the failure if a file changed after it was hashed: then it is unknown what was run."""
        path = file_inspector.first_changed(launched.files)
        if not path:
            return None
        message = f"{path} changed while the child was starting, so it is unknown what was run"
        entry = self.approvals.find(spec.name, self.platform)
        return self.refusal(spec, ApprovalFault(entry.key if entry is not None else "", message))

    def refusal(self, spec: ChildSpec, fault: LaunchFault) -> Failure:
        """Return the failure for a fault, naming file and key."""
        source = self.file if isinstance(fault, ApprovalFault) else spec.source
        where = f"{source}: {fault.key}" if fault.key else source
        return failure(
            "launch_refused",
            f"Child '{spec.name}' may not run: {where}: {fault.why}.",
            child=spec.name,
            hint=f"Fix the named problem, then approve it again: `switchboard approve {shell_word(spec.name)}`.",
        )

    def _request(self, spec: ChildSpec, entry: LocatedApproval, inspector: FileInspector) -> LaunchRequest:
        approval = entry.approval
        argv = [*map(self.path_variables.fill, approval.launch), *spec.args[approval.replaces :]]
        return LaunchRequest(
            spec,
            entry.key,
            approval,
            self.governance,
            self.workspace,
            self.path_variables,
            argv,
            self.environment(spec),
            inspector,
        )

    def _not_allowed(self, spec: ChildSpec) -> Failure:
        """Return the failure for a child without an approval."""
        where = f"{spec.source}: {spec.key}" if spec.key else spec.source
        others = ", ".join(self.approvals.elsewhere(spec.name, self.platform))
        on = f" on {self.platform}, only on {others}" if others else ""
        return failure(
            "child_not_allowed",
            f"Child '{spec.name}' ({where}) is not approved in {self.file}{on}.",
            child=spec.name,
            hint=f"A person who may approve children runs `switchboard approve {shell_word(spec.name)}`"
            + (f" on {self.platform}, the platform of this machine." if others else "."),
        )

    def _refused(self, request: LaunchRequest, rules: Sequence[LaunchRule]) -> Failure | None:
        fault = text.first_fault(rule(request) for rule in rules)
        return None if fault is None else self.refusal(request.spec, fault)

    def environment(self, spec: ChildSpec) -> dict[str, str]:
        """Return the environment of a child."""
        inherited = {name: self.environ[name] for name in self.governance.env if name in self.environ}
        return {**inherited, **spec.env}
