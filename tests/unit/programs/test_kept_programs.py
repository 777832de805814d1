"""Kept programs are readable files of the workspace, found by their words and known by their checksums."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.children.locking.lock_file import lock_path, write_lock
from switchboard_mcp.children.locking.pinning import Pins
from switchboard_mcp.cli.governance.lock import compare_programs, record_program
from switchboard_mcp.config.files.lock_models import LockFile
from switchboard_mcp.config.models import Config, Workspace
from switchboard_mcp.config.sections import ProgramSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.observability.log import Log
from switchboard_mcp.programs.kept_programs import (
    MAX_DESCRIPTION_CHARS,
    KeptPrograms,
    kept_programs_of,
    program_hash,
)
from tests.cases import each_case


def new_kept(tmp_path: Path) -> KeptPrograms:
    return KeptPrograms(str(tmp_path / "programs"), 1_000)


kept = pytest.fixture(new_kept, name="kept")


def test_a_program_is_a_python_file_with_its_description_on_top(kept: KeptPrograms) -> None:
    path = kept.write("triage", "import github\n1", "Labels\nnew issues")
    assert Path(path).read_text() == "# Labels new issues\nimport github\n1\n"
    read = kept.read("triage")
    assert (read.name, read.description) == ("triage", "Labels new issues")
    assert read.hash == program_hash(Path(path).read_bytes())


def test_a_comment_of_the_author_is_the_description(kept: KeptPrograms) -> None:
    kept.write("a", "# Counts stars\n1\n", "something else")
    assert kept.read("a").description == "Counts stars"
    kept.write("b", "1")
    assert kept.read("b").description == ""
    kept.write("c", "1", "x" * 1_000)
    assert len(kept.read("c").description) == MAX_DESCRIPTION_CHARS


@each_case("name", ["", "..", "../x", "a/b", "A", "a.b", "-a", "a" * 65, "a\n", "ä", "con\0"], kept=new_kept)
def test_a_name_cannot_leave_the_folder(kept: KeptPrograms, name: str) -> None:
    for use in (kept.read, kept.remove, lambda name: kept.write(name, "1")):
        with pytest.raises(SwitchboardError) as refusal:
            use(name)
        assert refusal.value.failure.code == "program_unknown"
    assert not os.path.exists(kept.folder)


def test_links_and_other_files_are_not_programs(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("# a secret\n1\n")
    workspace = tmp_path / "workspace"
    folder = workspace / "programs"
    folder.mkdir(parents=True)
    kept = KeptPrograms(str(folder), 1024, str(workspace))
    (folder / "link.py").symlink_to(secret)
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    for name in ("link", "folder", "pipe"):
        with pytest.raises(SwitchboardError, match="cannot be read"):
            kept.read(name)
    assert kept.all() == []
    # Nor is anything read from or written to a folder that leads out of the workspace.
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("# a secret\n1\n")
    (workspace / "linked").symlink_to(outside)
    for place in ("linked", "linked/programs"):
        linked = KeptPrograms(str(workspace / place), 1024, str(workspace))
        assert linked.all() == []
        with pytest.raises(SwitchboardError, match="symbolic link"):
            linked.write("b", "1")
    assert [one.name for one in outside.iterdir()] == ["a.py"]


def test_an_unknown_program_is_named_with_those_like_it(kept: KeptPrograms) -> None:
    kept.write("triage", "1")
    with pytest.raises(SwitchboardError) as refusal:
        kept.read("triag")
    assert refusal.value.failure.nearest == ["triage"]


def test_programs_are_listed_found_and_removed(kept: KeptPrograms) -> None:
    assert kept.all() == []
    kept.write("triage", "1", "Label the new issues of a repository")
    kept.write("stars", "2", "Count the stars of repositories")
    Path(kept.folder, "notes.txt").write_text("no program")
    Path(kept.folder, "Bad Name.py").write_text("1")
    assert [one.name for one in kept.all()] == ["stars", "triage"]
    assert [one.name for one in kept.find("label issues", 1)] == ["triage"]
    assert kept.find("weather", 3) == []
    kept.remove("triage")
    assert [one.name for one in kept.all()] == ["stars"]


def test_the_lock_holds_programs_until_a_change_is_accepted(tmp_path: Path) -> None:
    config = Config(programs=ProgramSettings(enabled=True))
    workspace = Workspace(
        folder=str(tmp_path), source=str(tmp_path / "c.json"), config=config, children=[], warnings=[]
    )
    kept, lock = kept_programs_of(workspace), LockFile(schema_version=1)

    def locked(*accepted: str, check: bool = False) -> dict[str, str]:
        names = frozenset(accepted)
        reports = compare_programs(workspace, lock, names, names, check=check)
        if not check:
            for report in reports:
                record_program(lock, report)
        return {report.child: report.status for report in reports}

    assert locked() == {}
    kept.write("triage", "1")
    assert locked(check=True) == {"program:triage": "unlocked"}
    assert locked() == {"program:triage": "locked"}
    assert locked(check=True) == {"program:triage": "same"}
    kept.write("triage", "2")
    assert locked() == {"program:triage": "drifted"}
    assert lock.programs != {"triage": kept.read("triage").hash}
    assert locked("program:triage") == {"program:triage": "accepted"}
    assert lock.programs == {"triage": kept.read("triage").hash}
    write_lock(lock_path(str(tmp_path)), lock)
    pins = Pins(None, str(tmp_path), Log(level="error"), governed=True)
    assert pins.program_hash("triage") == kept.read("triage").hash
    assert pins.program_hash("other") == ""
    kept.remove("triage")
    assert locked(check=True) == {"program:triage": "gone"}
    assert locked() == {"program:triage": "removed"}
    assert LockFile(schema_version=1) == lock
