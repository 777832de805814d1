"""What `approve` shows to whoever decides."""

from __future__ import annotations

import io

from switchboard_mcp.cli.console import Screen
from switchboard_mcp.cli.governance.approve import show_approval
from switchboard_mcp.config.files.approvals import Approval, FilePin
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.policy.approved_settings import SectionStatus
from switchboard_mcp.policy.launch.child_approval import ChildProposal
from switchboard_mcp.policy.launch.file_inspector import NOTHING_THERE
from tests.cases import each_case

SAME_VERSION = "The package version is the same"
SUITE = SectionStatus(name="suites.x", child="x", value={}, sha256="0" * 64, state="unset")


def approved(node: str = "a", script: str = "b", package: str = "npm:x@1.0.0") -> Approval:
    files = [FilePin(path="/usr/bin/node", sha256=node * 64), FilePin(path="/srv/x.js", sha256=script * 64)]
    return Approval(command="npx", launch=["/usr/bin/node", "/srv/x.js"], files=files, package=package)


@each_case(
    ("now", "warned"),
    [
        (approved(script="c"), True),
        (approved(script="c", package="npm:x@1.0.1"), False),
        (approved(node="c"), False),
        (approved(), False),
    ],
    ids=["files changed under one version", "a new version", "a new interpreter", "nothing"],
)
def test_files_that_changed_under_the_same_version_are_warned_of(now: Approval, warned: bool) -> None:
    shown = io.StringIO()
    spec = ChildSpec(name="x", source="config", kind="stdio", command="npx", cwd="/srv")
    show_approval(ChildProposal(spec, SUITE, now, approved()), Screen(shown, {}))
    assert (SAME_VERSION in shown.getvalue()) == warned


def shown(approval: Approval, *args: str, columns: str = "40") -> str:
    """What somebody sees on a narrow terminal."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    spec = ChildSpec(
        name="x", source="config", kind="stdio", command="/usr/bin/tool", args=list(args), cwd="/srv"
    )
    proposal = ChildProposal(spec, SUITE, approval, None)
    show_approval(proposal, Screen(terminal, {"COLUMNS": columns, "NO_COLOR": "1"}))
    return terminal.getvalue()


def test_a_command_line_is_shown_whole_in_a_narrow_terminal() -> None:
    tail = ["--root", "/" + "x" * 200, "--and-then=evil"]
    output = shown(Approval(launch=["/usr/bin/tool"], args=tail), *tail)
    assert output.count("--and-then=evil") == 2


def test_it_is_seen_where_an_argument_ends() -> None:
    output = shown(Approval(launch=["/usr/bin/tool"], args=["a b", ""]), "a b", "")
    assert output.count("/usr/bin/tool 'a b' ''") == 2


def test_letters_that_look_like_others_are_reported() -> None:
    output = shown(Approval(launch=["/opt/n\u043ede/bin/node"]))
    assert "/opt/n\\u043ede/bin/node" in output
    pinned = Approval(launch=["/x"], files=[FilePin(path="/x", sha256="a" * 64, real="/y")])
    assert "\\u" not in shown(pinned)


def test_pinned_files_data_and_absent_ones_are_told_apart() -> None:
    files = [
        FilePin(path="/usr/bin/tool", sha256="a" * 64),
        FilePin(path="${workspace}/docs", sha256="b" * 64),
        FilePin(path="/usr", sha256=NOTHING_THERE, names=["pyvenv.cfg"]),
        FilePin(path="/lib/site", sha256="c" * 64, names=["*.pth"]),
    ]
    args = ["docs", "db"]
    output = shown(
        Approval(launch=["/usr/bin/tool"], args=args, files=files, data=["${workspace}/db"]),
        *args,
        columns="120",
    )
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "not pinned ${workspace}/db (data)" in lines
    assert "must lack pyvenv.cfg in /usr" in lines
    assert any(line.endswith("/lib/site (only *.pth)") for line in lines)
    assert "The child will not start once ${workspace}/docs has changed." in lines
