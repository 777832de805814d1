"""The launch rules of governed mode: from the entry of a child to a launch that is approved, or to why it is not.

One table of checks over the entry with its variables filled in. All but the last look at text and file rights only, so
that a whole workspace is judged at its start; the last reads what is pinned, at each launch. Nothing is run here: who
starts a process needs an `Approved`, and this is the one place that makes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from switchboard_mcp.config.approvals import Approval, Approvals, LocatedApproval, PathVariables
from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sections import AskSettings, GovernanceSettings
from switchboard_mcp.config.variables import used_variables
from switchboard_mcp.config.wrapped_children import wrapper_folder
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.policy.launch import file_inspector, wrappers
from switchboard_mcp.policy.launch import text_rules as text
from switchboard_mcp.policy.launch.containers import image_flaw
from switchboard_mcp.policy.launch.file_inspector import FileIdentity, FileInspector
from switchboard_mcp.policy.launch.text_rules import LaunchFault


class ApprovedLaunch(Struct, frozen=True):
    """A launch that may happen as it stands here. `marks` tell whether the files are still those that were read."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    marks: tuple[FileIdentity, ...]


class LaunchRequest(Struct, frozen=True):
    """What the rules look at: the entry, its approval, and what both make."""

    spec: ChildSpec
    key: str  # of the approval
    approval: Approval
    governance: GovernanceSettings
    workspace: str
    words: PathVariables
    argv: list[str]
    look: FileInspector

    def pinned(self) -> list[str]:
        """The pinned paths, in the order of the file."""
        return [self.words.fill(pin.path) for pin in self.approval.files]

    def places(self) -> list[str]:
        """Where programs may lie; anywhere when empty."""
        return [os.path.join(self.workspace, place) for place in self.governance.places]

    def in_approvals(self, *path: str) -> str:
        """A key in the approvals file."""
        key = self.key
        for part in path:
            key = f"{key}{part}" if part.startswith("[") else join_key(key, part)
        return key


class ApprovalFault(LaunchFault, frozen=True):
    """What is wrong with the approval, or with the world as it describes it."""


def as_configured(case: LaunchRequest) -> LaunchFault | None:
    """The entry is the one that was approved."""
    spec, approval = case.spec, case.approval
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
    if spec.command != case.words.fill(approval.command):
        return LaunchFault(text.command_key(spec), changed)
    for index, (word, pattern) in enumerate(zip(spec.args, approval.args, strict=False)):
        if not fits(word, pattern):
            return LaunchFault(text.argument_key(spec, index), changed)
    if len(spec.args) != len(approval.args):
        key = text.argument_key(spec, 0).removesuffix("[0]")
        return LaunchFault(key, f"has {len(spec.args)} members where {len(approval.args)} were approved")
    return None


def fits(word: str, pattern: str) -> bool:
    """Whether an argument is what a pattern says. What a `*` stands for cannot become a flag."""
    if "*" not in pattern:
        return word == pattern
    parts = [part.replace("\\*", "*") for part in re.split(r"(?<!\\)\*", pattern)]
    if len(parts) == 1:
        return word == parts[0]
    if not parts[0] and word.startswith("-"):
        return False
    return re.fullmatch(".*".join(map(re.escape, parts)), word, re.DOTALL) is not None


def known_variables(case: LaunchRequest) -> LaunchFault | None:
    """Every variable that the entry sets is approved by name; one that changes what runs, with its value."""
    for name, value in case.spec.env.items() if case.spec.kind == "stdio" else ():
        key = text.variable_key(case.spec, name)
        if text.STEERING.fullmatch(name):
            if case.approval.env_values.get(name) != value:
                told = "changes what runs; it needs an approval with this value (approve --allow-env NAME)"
                return LaunchFault(key, told)
        elif name not in case.approval.env:
            return LaunchFault(key, "is not among the approved names of variables")
    return None


def inside_workspace(case: LaunchRequest) -> LaunchFault | None:
    """The child works in a folder of the workspace, links followed."""
    if case.spec.kind == "stdio" and not case.look.inside(case.spec.cwd, case.workspace):
        return LaunchFault(join_key(case.spec.key, "cwd"), f"is outside the workspace {case.workspace}")
    return None


def absolute(case: LaunchRequest) -> LaunchFault | None:
    """The program is an absolute path that needs no explaining, and so is every pinned file."""
    if case.spec.kind != "stdio":
        return None
    if not case.approval.launch:
        return ApprovalFault(case.in_approvals("launch"), "names no program")
    for index, path in enumerate([case.argv[0], *case.pinned()]):
        key = (
            case.in_approvals("launch", "[0]") if not index else case.in_approvals("files", f"[{index - 1}]")
        )
        if not os.path.isabs(path) or os.path.normpath(path) != path:
            return ApprovalFault(key, "is no absolute path in its shortest form")
    return None


def no_shell_runs(case: LaunchRequest) -> LaunchFault | None:
    """Neither what is named nor what it really is may be a shell, a wrapper or a package runner."""
    if case.spec.kind != "stdio":
        return None
    for path in dict.fromkeys((case.argv[0], case.look.real(case.argv[0]))):
        name = text.program_name(path)
        if name in text.SHELLS | text.WRAPPERS | text.RUNNERS:
            return ApprovalFault(
                case.in_approvals("launch", "[0]"), f"is {name}, which runs what others decide"
            )
        flaw = text.interpreter_flaw(name, case.argv[1:])
        if flaw is not None:
            return ApprovalFault(case.in_approvals("launch", f"[{flaw[0] + 1}]"), flaw[1])
        if name in text.CONTAINERS and (problem := image_flaw(case.argv[1:])):
            return ApprovalFault(case.in_approvals("launch"), problem)
    return None


def no_script_runs(case: LaunchRequest) -> LaunchFault | None:
    """The program is none that the system hands to a shell, and no shell under another name. Looks into files."""
    if case.spec.kind == "stdio" and (
        file_inspector.is_script(case.argv[0]) or file_inspector.is_shell(case.argv[0])
    ):
        told = "is a script or a shell; name the interpreter and the script"
        return ApprovalFault(case.in_approvals("launch", "[0]"), told)
    return None


def all_pinned(case: LaunchRequest) -> LaunchFault | None:
    """Program and script have checksums; so has every file that the launch itself names."""
    if case.spec.kind != "stdio":
        return None
    pinned = case.pinned()
    own = len(case.approval.launch)
    for index, word in enumerate(case.argv[:own]):
        if (index == 0 or word.startswith("/")) and word not in pinned:
            return ApprovalFault(case.in_approvals("launch", f"[{index}]"), "has no checksum under `files`")
    if text.program_name(case.argv[0]) in text.INTERPRETERS and len(pinned) < 2:
        return ApprovalFault(case.in_approvals("files"), "has no checksum of the script that is run")
    if text.program_name(case.argv[0]) in text.INTERPRETERS and not _script_is_pinned(case, own):
        return ApprovalFault(case.in_approvals("launch"), "does not name the script that is run")
    return None


def _script_is_pinned(case: LaunchRequest, own: int) -> bool:
    words = case.argv[1:own]
    return "-m" in words[:-1] or any(word.startswith("/") and word in case.pinned() for word in words)


def safe_files(case: LaunchRequest) -> LaunchFault | None:
    """Nobody but root and ourselves can change what is pinned, and it lies where it may."""
    for index, (pin, path) in enumerate(zip(case.approval.files, case.pinned(), strict=True)):
        key = case.in_approvals("files", f"[{index}]")
        if problem := case.look.flaw(path, places=case.places()):
            return ApprovalFault(key, f"{path} {problem}")
        if case.look.real(path) != (case.words.fill(pin.real) or path):
            return ApprovalFault(key, f"{path} leads to another place than was approved")
    return None


Rule = Callable[[LaunchRequest], LaunchFault | None]
RULES: tuple[Rule, ...] = (
    as_configured,
    known_variables,
    inside_workspace,
    absolute,
    no_shell_runs,
    all_pinned,
    safe_files,
)


class LaunchPolicy(Struct, frozen=True):
    """Judges launches by one workspace's approvals. `file` is where they stand."""

    approvals: Approvals
    file: str
    governance: GovernanceSettings
    workspace: str
    words: PathVariables
    environ: Mapping[str, str]
    ask: AskSettings = AskSettings()
    config: str = ""  # the file that the settings are from
    platform: str = ""

    def judge(self, spec: ChildSpec, look: FileInspector | None = None) -> Failure | None:
        """Why the child may not run, as far as can be said without reading what is pinned."""
        if spec.wraps:
            return self.may_be_asked(spec)
        fault = text.text_fault(spec)
        if fault is not None:
            return self.refusal(spec, fault)
        found = self.approvals.find(spec.name, self.platform)
        if found is None:
            return self._not_allowed(spec)
        return self._refused(self._case(spec, found, look or FileInspector()), RULES)

    def judge_written(self, spec: ChildSpec) -> Failure | None:
        """Why the child may not run, by what its entry is filled with: approved is also which secret it is handed."""
        found = self.approvals.find(spec.name, self.platform)
        approved = found.approval.variables if found is not None and not spec.wraps else None
        for asked in used_variables(spec):
            if approved is not None and asked.variable not in approved:
                told = f"is filled with {asked.variable}, which is not among the approved variables"
                return self.refusal(spec, LaunchFault(asked.key, told))
        return None

    def approve(self, spec: ChildSpec) -> ApprovedLaunch | Failure:
        """The launch of a child, its variables filled in already. Reads what is pinned, which takes a while."""
        problem = self.judge(spec)
        if problem is not None:
            return problem
        if spec.wraps:
            argv = wrappers.argv(spec.name, self.workspace, self.config)
            return ApprovedLaunch(argv, dict(self.environ), self.workspace, wrappers.marks())
        found = self.approvals.find(spec.name, self.platform)
        assert found is not None  # or it had been refused
        case = self._case(spec, found, FileInspector())
        problem = self._refused(case, (no_script_runs,))
        if problem is not None:
            return problem
        marks: list[FileIdentity] = []
        for index, (pin, path) in enumerate(zip(case.approval.files, case.pinned(), strict=True)):
            key = case.in_approvals("files", f"[{index}]", "sha256")
            try:
                sealed = file_inspector.seal(path)
            except OSError as trouble:
                where = trouble.filename or path
                return self.refusal(spec, ApprovalFault(key, f"{where}: {trouble.strerror}"))
            if sealed.sha256 != pin.sha256:
                told = f"{path} is not what was approved (now {sealed.sha256[:12]}…, approved {pin.sha256[:12]}…)"
                return self.refusal(spec, ApprovalFault(key, told))
            marks += sealed.marks
        return ApprovedLaunch(case.argv, self._environment(spec), spec.cwd, tuple(marks))

    def may_be_asked(self, spec: ChildSpec) -> Failure | None:
        """Why sentences may not be turned into calls of a child, be it wrapped or not."""
        found = self.approvals.find(spec.name, self.platform)
        if found is None:
            return self._not_allowed(spec)
        why = wrappers.flaw(spec.name, found.approval, self.ask, wrapper_folder(self.workspace, spec))
        if not why:
            return None
        return failure(
            "child_not_allowed",
            f"Child '{spec.name}' ({spec.source}) may not be asked in natural language: {why} ({self.file}).",
            child=spec.name,
            hint=f"Whoever approves children here runs `switchboard approve {spec.name} --ask`; "
            f"`switchboard unwrap {spec.name}` gives its subtools back.",
        )

    def changed(self, spec: ChildSpec, launched: ApprovedLaunch) -> Failure | None:
        """What was read before the launch and is another file now; then nobody knows what was run."""
        path = file_inspector.moved(launched.marks)
        if not path:
            return None
        told = f"{path} changed while the child was starting, so that nobody knows what was run"
        found = self.approvals.find(spec.name, self.platform)
        return self.refusal(spec, ApprovalFault(found.key if found is not None else "", told))

    def refusal(self, spec: ChildSpec, fault: LaunchFault) -> Failure:
        """The fault in words, with file and key."""
        source = self.file if isinstance(fault, ApprovalFault) else spec.source
        where = f"{source}: {fault.key}" if fault.key else source
        return failure(
            "launch_refused",
            f"Child '{spec.name}' may not run: {where}: {fault.why}.",
            child=spec.name,
            hint=f"Fix what is named, then approve it again: `switchboard approve {spec.name}`.",
        )

    def _case(self, spec: ChildSpec, found: LocatedApproval, look: FileInspector) -> LaunchRequest:
        approval = found.approval
        argv = [*map(self.words.fill, approval.launch), *spec.args[approval.replaces :]]
        return LaunchRequest(
            spec, found.key, approval, self.governance, self.workspace, self.words, argv, look
        )

    def _not_allowed(self, spec: ChildSpec) -> Failure:
        """What is said of a child that nobody has approved."""
        where = f"{spec.source}: {spec.key}" if spec.key else spec.source
        others = ", ".join(self.approvals.elsewhere(spec.name, self.platform))
        on = f" on {self.platform}, only on {others}" if others else ""
        return failure(
            "child_not_allowed",
            f"Child '{spec.name}' ({where}) is not approved in {self.file}{on}.",
            child=spec.name,
            hint=f"Whoever approves children here runs `switchboard approve {spec.name}`"
            + (f" on {self.platform}, as this machine is." if others else "."),
        )

    def _refused(self, case: LaunchRequest, rules: Sequence[Rule]) -> Failure | None:
        fault = text.first(rule(case) for rule in rules)
        return None if fault is None else self.refusal(case.spec, fault)

    def _environment(self, spec: ChildSpec) -> dict[str, str]:
        handed_on = {name: self.environ[name] for name in self.governance.env if name in self.environ}
        return {**handed_on, **spec.env}
