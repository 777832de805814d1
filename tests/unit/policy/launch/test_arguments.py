"""Whatever an argument names is pinned or refused: for any program, in any spelling."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

import pytest
from msgspec import structs

from switchboard_mcp.config.files.approvals import Approval, Approvals, PathVariables
from switchboard_mcp.config.sections import GovernanceSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.launch import file_inspector, program_resolution, text_rules
from switchboard_mcp.policy.launch.approval import propose
from switchboard_mcp.policy.launch.rules import ApprovedLaunch, LaunchPolicy
from tests.cases import each_case
from tests.unit.policy.launch.launching import Place

NOTHING: frozenset[str] = frozenset()
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
SPELLINGS = """
{} ./{} {folder}/{} @{} -f{} -nf{} --file={} --file={folder}/{} -f={} -I{folder}/{} --include{folder}/{} key={},other=1
other=1,key={} a:{} {}:b a,{},b file:{folder}/{} file://{folder}/{} script={}:rw -Wl,-T,{} -Wl,-T{} "{}" ~/{} exec={}
a=b=c={} --x='{}' a@{} data:{} -Dconf={folder}/{} {folder}//{} {folder}/./{} sub/{}
""".split()
CODE = "{} -e code|{} -c code|{} -r code|{} --eval=code|{} -m module|{} -".split("|")


def new_tool(place: Place) -> Path:
    """A program that nobody knows."""
    path = place.bin / "tool"
    path.write_bytes(b"\x7fELF tool")
    path.chmod(0o755)
    return path


tool = pytest.fixture(new_tool, name="tool")


def new_policy(place: Place) -> LaunchPolicy:
    environ = {"PATH": f"{PATH}:{place.bin}", "HOME": str(place.folder)}
    governed = GovernanceSettings(mode="governed", env=["PATH", "HOME"])
    return structs.replace(place.guard(governed), environ=environ, approvals=Approvals())


policy = pytest.fixture(new_policy, name="policy")


def proposal(
    place: Place, policy: LaunchPolicy, program: Path | str, *args: str, **more: frozenset[str]
) -> Approval | Failure:
    spec = place.spec(command=str(program), args=list(args), env={})
    return propose(spec, policy, NOTHING, **more)  # type: ignore[arg-type]


def pinned(approval: Approval | Failure, policy: LaunchPolicy) -> set[str]:
    assert isinstance(approval, Approval), approval.message
    return {policy.path_variables.fill(pin.path) for pin in approval.files}


@each_case("spelling", SPELLINGS)
@each_case("name", ["evil", "evil.sed", "evil-1.2.so"], place=Place, tool=new_tool, policy=new_policy)
def test_a_file_is_found_in_every_spelling(
    place: Place, policy: LaunchPolicy, tool: Path, spelling: str, name: str
) -> None:
    (place.folder / "sub").mkdir()
    file = place.folder / "sub" / name if spelling.startswith("sub/") else place.folder / name
    file.write_text("evil")
    word = spelling.replace("{folder}", str(place.folder)).replace("{}", name)
    assert str(file) in pinned(proposal(place, policy, tool, "--flag", word), policy)


@each_case("spelling", SPELLINGS, place=Place, tool=new_tool, policy=new_policy)
def test_a_file_that_appears_or_changes_later_stops_the_child(
    place: Place, policy: LaunchPolicy, tool: Path, spelling: str
) -> None:
    (place.folder / "sub").mkdir()
    file = place.folder / "sub" / "evil" if spelling.startswith("sub/") else place.folder / "evil"
    word = spelling.replace("{folder}", str(place.folder)).replace("{}", "evil")
    spec = place.spec(command=str(tool), args=[word], env={})
    before = propose(spec, policy, NOTHING)
    assert isinstance(before, Approval)
    judge = structs.replace(policy, approvals=Approvals(children={"good": before}))
    assert isinstance(judge.approve(spec), ApprovedLaunch)
    file.write_text("evil")
    refused = judge.approve(spec)
    assert isinstance(refused, Failure)
    assert f"args[0]: names {file}, which is neither pinned nor approved as data" in refused.message
    after = propose(spec, policy, NOTHING)
    assert isinstance(after, Approval)
    judge = structs.replace(policy, approvals=Approvals(children={"good": after}))
    assert isinstance(judge.approve(spec), ApprovedLaunch)
    file.write_text("changed")
    assert isinstance(judge.approve(spec), Failure)


def test_a_folder_is_pinned_with_all_that_is_in_it(place: Place, policy: LaunchPolicy, tool: Path) -> None:
    (place.folder / "plugins").mkdir()
    (place.folder / "plugins" / "a.so").write_text("a")
    spec = place.spec(command=str(tool), args=["--plugins=plugins"], env={})
    approval = propose(spec, policy, NOTHING)
    assert isinstance(approval, Approval)
    judge = structs.replace(policy, approvals=Approvals(children={"good": approval}))
    assert isinstance(judge.approve(spec), ApprovedLaunch)
    (place.folder / "plugins" / "b.so").write_text("b")
    assert isinstance(judge.approve(spec), Failure)


def test_data_is_approved_by_name_and_stays_so(place: Place, policy: LaunchPolicy, tool: Path) -> None:
    data = place.folder / "data"
    data.mkdir()
    spec = place.spec(command=str(tool), args=["--root", "data", "--db=data/x.db", "--log=out.log"], env={})
    approval = propose(spec, policy, NOTHING, data=frozenset({"data", str(place.folder / "out.log")}))
    assert isinstance(approval, Approval)
    assert approval.data == ["${workspace}/data", "${workspace}/out.log"]
    judge = structs.replace(policy, approvals=Approvals(children={"good": approval}))
    for path in (data / "x.db", place.folder / "out.log"):
        path.write_text("new")
        assert isinstance(judge.approve(spec), ApprovedLaunch)
    again = propose(spec, judge, NOTHING)
    assert isinstance(again, Approval)
    assert again.data == approval.data
    other = propose(structs.replace(spec, args=["--db=data/x.db"]), judge, NOTHING)
    assert isinstance(other, Approval)
    assert other.data == ["${workspace}/data"]


@each_case("word", ["--root=data", "{data}", "--db=data/x.db"], place=Place, tool=new_tool, policy=new_policy)
def test_data_that_becomes_a_link_to_elsewhere_stops_the_child(
    place: Place, policy: LaunchPolicy, tool: Path, tmp_path: Path, word: str
) -> None:
    data, elsewhere = place.folder / "data", tmp_path / "elsewhere"
    for folder in (data, elsewhere):
        folder.mkdir()
        (folder / "x.db").write_text("x")
    spec = place.spec(command=str(tool), args=[word.replace("{data}", str(data))], env={})
    approval = propose(spec, policy, NOTHING, data=frozenset({"data"}))
    assert isinstance(approval, Approval)
    judge = structs.replace(policy, approvals=Approvals(children={"good": approval}))
    assert isinstance(judge.approve(spec), ApprovedLaunch)
    data.rename(place.folder / "before")
    data.symlink_to(elsewhere)
    refused = judge.approve(spec)
    assert isinstance(refused, Failure)
    assert "is neither pinned nor approved as data" in refused.message
    again = propose(spec, policy, NOTHING, data=frozenset({"data"}))
    assert isinstance(again, Approval)
    judge = structs.replace(policy, approvals=Approvals(children={"good": again}))
    assert isinstance(judge.approve(spec), ApprovedLaunch)
    kept = propose(spec, judge, NOTHING)
    assert isinstance(kept, Approval)
    assert kept.data == again.data


def test_data_in_a_workspace_behind_a_link_stays_data(
    place: Place, policy: LaunchPolicy, tool: Path, tmp_path: Path
) -> None:
    (place.folder / "data").mkdir()
    way = tmp_path / "way"
    way.symlink_to(place.folder)
    variables = PathVariables(str(way), "")
    policy = structs.replace(policy, workspace=str(way), path_variables=variables)
    spec = structs.replace(place.spec(command=str(tool), args=["data"], env={}), cwd=str(way))
    approval = propose(spec, policy, NOTHING, data=frozenset({"data"}))
    assert isinstance(approval, Approval)
    judge = structs.replace(policy, approvals=Approvals(children={"good": approval}))
    assert isinstance(judge.approve(spec), ApprovedLaunch)


@each_case("word", [".", "--root=.", "{folder}"], place=Place, tool=new_tool, policy=new_policy)
def test_a_folder_with_the_approvals_in_it_can_only_be_data(
    place: Place, policy: LaunchPolicy, tool: Path, word: str
) -> None:
    word = word.replace("{folder}", str(place.folder))
    refused = proposal(place, policy, tool, word)
    assert isinstance(refused, Failure)
    assert f"approve with --data {place.folder}" in refused.message
    assert isinstance(proposal(place, policy, tool, word, data=frozenset({"."})), Approval)


def test_a_file_that_others_may_write_is_not_pinned(place: Place, policy: LaunchPolicy, tool: Path) -> None:
    (place.folder / "evil").write_text("evil")
    (place.folder / "evil").chmod(0o666)
    refused = proposal(place, policy, tool, "-fevil")
    assert isinstance(refused, Failure)
    assert "args[0]" in refused.message
    assert "is writable by everybody" in refused.message


@each_case(
    "word",
    ["git", "--tool=git", "a,git", "/usr/bin/git", "git log", "x=y:git"],
    place=Place,
    tool=new_tool,
    policy=new_policy,
)
def test_a_program_in_the_arguments_is_pinned_and_never_data(
    place: Place, policy: LaunchPolicy, tool: Path, word: str
) -> None:
    found = pinned(proposal(place, policy, tool, word, data=frozenset({"/usr/bin/git"})), policy)
    assert "/usr/bin/git" in found or word == "/usr/bin/git"


@each_case(
    "line",
    [
        "sh", "bash", "/bin/sh -c id", "--shell=bash", "-- dash", "sh,-c,id", "npx -y pkg", "uvx pkg", "--with npm",
        *(code.format(name) for code in CODE for name in ("perl", "python3", "node", "/usr/bin/perl", "-- perl")),
    ],
place=Place, tool=new_tool, policy=new_policy)  # fmt: skip
def test_a_shell_a_runner_or_code_in_the_arguments_is_refused(
    place: Place, policy: LaunchPolicy, tool: Path, line: str
) -> None:
    (place.bin / "uvx").write_bytes(b"\x7fELF")
    (place.bin / "uvx").chmod(0o755)
    refused = proposal(place, policy, tool, *line.split())
    assert isinstance(refused, Failure), refused
    assert "args[" in refused.message


def test_a_command_line_in_one_argument_is_one_too(place: Place, policy: LaunchPolicy, tool: Path) -> None:
    for word in ("perl -e code", "--run=python3 -c code", "sh -c id", "a sh b"):
        assert isinstance(proposal(place, policy, tool, word), Failure), word


@each_case(
    "line",
    [
        "--port 8080 --host localhost",
        "stdio",
        "--verbose --level=debug",
        "https://host/a?b=c",
        "--time 10:30",
        "true",
    ],
    place=Place,
    tool=new_tool,
    policy=new_policy,
)
def test_ordinary_arguments_name_nothing(place: Place, policy: LaunchPolicy, tool: Path, line: str) -> None:
    assert pinned(proposal(place, policy, tool, *line.split()), policy) == {str(tool)}


def test_mounts_of_a_container_are_pinned_or_data(place: Place, policy: LaunchPolicy) -> None:
    docker = place.bin / "docker"
    docker.write_bytes(b"\x7fELF docker")
    docker.chmod(0o755)
    work = place.folder / "work"
    work.mkdir()
    image = "mcp/x@sha256:" + "a" * 64
    for mount in (f"-v {work}:/w", f"--mount type=bind,src={work},dst=/w", f"--volume={work}:/w:ro"):
        args = ["run", "-i", *mount.split(), image, "/etc", "sh"]
        assert str(work) in pinned(proposal(place, policy, docker, *args), policy)
        assert str(work) not in pinned(
            proposal(place, policy, docker, *args, data=frozenset({str(work)})), policy
        )
    missing = proposal(place, policy, docker, "run", "-v", f"{place.folder}/later:/w", image)
    assert isinstance(missing, Failure)
    assert "--data" in missing.message


# The programs of this machine, with all that can start another program by their symbols.

RUNNING = re.compile(rb"\0(?:f?exec[lv]p?e?|system|popen|posix_spawnp?)\0")


@lru_cache
def programs() -> list[str]:
    """The programs of this machine that can run others, by the functions that they import."""
    found = {}
    for folder in PATH.split(":"):
        for entry in (
            sorted(os.scandir(folder), key=lambda entry: entry.name) if os.path.isdir(folder) else ()
        ):
            real = os.path.realpath(entry.path)
            if real in found:
                continue
            try:
                with open(real, "rb") as file:
                    data = file.read(1 << 18)  # the names are near the beginning
            except OSError:
                continue
            if data.startswith(b"\x7fELF") and RUNNING.search(data):
                found[real] = entry.path
    return sorted(found.values())


LINES = [
    "evil", "-f evil", "-fevil", "--file=evil", "@evil", "-- evil", "-n 5 -- ./evil", "--nofile=5 {folder}/evil",
    "-e evil", "script,evil", "/bin/sh -c id", "-- sh", "-wrapper sh,-c,id", "-n 5 perl -e code", "now perl -e code",
    "--exec=python3 -c code", "bash",
]  # fmt: skip


def test_no_program_of_this_machine_runs_another_one_that_is_not_pinned(
    place: Place, policy: LaunchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the names of wrappers: files and programs in the arguments decide.
    for module in (program_resolution, text_rules):
        monkeypatch.setattr(module, "runs_others", lambda path: "")
    cached = lru_cache(None)(file_inspector.hash_path)
    monkeypatch.setattr(file_inspector, "hash_path", lambda path, names=(): cached(path, tuple(names)))
    monkeypatch.setattr(file_inspector, "original_names", lru_cache(None)(file_inspector.original_names))
    evil = place.folder / "evil"
    evil.write_bytes(b"\x7fELF evil")
    evil.chmod(0o755)
    assert len(programs()) > 50
    unpinned = []
    for number, program in enumerate(programs()):
        for line in LINES[
            number % 4 :: 4
        ]:  # each program with some lines, each line with a quarter of the programs
            outcome = proposal(place, policy, program, *line.replace("{folder}", str(place.folder)).split())
            if isinstance(outcome, Approval) and not (
                "evil" in line and str(evil) in pinned(outcome, policy)
            ):
                unpinned.append(f"{program} {line}")
    assert unpinned == []
