from __future__ import annotations

import os
import py_compile
from pathlib import Path

import pytest

from switchboard_mcp.policy.launch.file_inspector import (
    FileInspector,
    find_flaw,
    first_changed,
    hash_path,
    is_inside,
)
from tests.acl import OPENINGS, STRANGER, WAYS
from tests.cases import each_case


def new_program(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "folder" / "program"
    path.parent.mkdir()
    path.write_bytes(b"\x7fELF")
    path.chmod(0o755)
    return path


program = pytest.fixture(new_program, name="program")


def test_a_file_that_only_its_owner_can_write_is_fine(program: Path) -> None:
    assert find_flaw(str(program)) == ""


@each_case(
    ("mode", "why"),
    [
        (0o757, "by everybody"),
        (0o4755, "setuid"),
        (0o2755, "setgid"),
    ],
    program=new_program,
)
def test_rights_that_let_others_in_are_refused(program: Path, mode: int, why: str) -> None:
    program.chmod(mode)
    assert why in find_flaw(str(program))


def test_a_folder_that_everybody_can_write_is_refused_wherever_it_is_on_the_way(program: Path) -> None:
    program.parent.chmod(0o777)
    assert f"is in {program.parent}, which is writable by everybody" in find_flaw(str(program))


def test_in_a_sticky_folder_entries_are_their_owners(program: Path) -> None:
    program.parent.chmod(0o1777)
    assert find_flaw(str(program)) == ""


def test_a_pipe_in_the_place_of_a_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path.resolve() / "pipe"
    os.mkfifo(pipe, 0o600)
    assert find_flaw(str(pipe)) == "is not a regular file"
    with pytest.raises(OSError, match="not a regular file"):
        hash_path(str(pipe))


def test_a_missing_file_is_refused_with_a_message(tmp_path: Path) -> None:
    assert find_flaw(str(tmp_path / "nothing")) == "no such file or directory"


def test_a_link_out_of_the_places_is_refused(program: Path, tmp_path: Path) -> None:
    allowed = tmp_path.resolve() / "allowed"
    allowed.mkdir()
    link = allowed / "program"
    link.symlink_to(program)
    assert "outside governance.places" in find_flaw(str(link), places=[str(allowed)])
    assert find_flaw(str(link), places=[str(allowed), str(program.parent)]) == ""


def test_a_link_is_judged_by_what_it_leads_to(program: Path, tmp_path: Path) -> None:
    link = tmp_path.resolve() / "link"
    link.symlink_to(program)
    program.chmod(0o757)
    assert "by everybody" in find_flaw(str(link))


def test_inside_follows_links_on_both_sides(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    assert is_inside(str(folder / "deep" / "er"), str(folder))
    assert not is_inside(str(folder / "link"), str(folder))
    assert not is_inside(str(tmp_path / "folder2"), str(folder))


def test_a_checksum_is_of_the_content_alone(program: Path) -> None:
    first = hash_path(str(program))
    os.utime(program, ns=(1, 1))
    assert hash_path(str(program)).sha256 == first.sha256
    program.write_bytes(b"\x7fELF2")
    assert hash_path(str(program)).sha256 != first.sha256


def test_a_folder_is_sealed_by_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "a.js").write_text("a")
    first = hash_path(str(folder)).sha256
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_text("made by running")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "b.js").write_text("another package")
    assert hash_path(str(folder)).sha256 == first
    (folder / "lib" / "a.js").rename(folder / "lib" / "b.js")
    assert hash_path(str(folder)).sha256 != first
    (folder / "lib" / "b.js").rename(folder / "lib" / "a.js")
    (folder / "lib" / "c.js").write_text("")
    assert hash_path(str(folder)).sha256 != first


def test_compiled_python_that_can_come_with_a_checkout_counts(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    source = folder / "a.py"
    source.write_text("a = 1\n")
    first = hash_path(str(folder)).sha256
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    assert hash_path(str(folder)).sha256 == first  # written by running it
    for mode in (
        py_compile.PycInvalidationMode.UNCHECKED_HASH,
        py_compile.PycInvalidationMode.CHECKED_HASH,
    ):
        compiled = py_compile.compile(str(source), invalidation_mode=mode)
        assert hash_path(str(folder)).sha256 != first
        Path(str(compiled)).unlink()
    py_compile.compile(str(source), cfile=str(folder / "json.pyc"))
    assert hash_path(str(folder)).sha256 != first  # imported without any source


def test_a_link_to_a_folder_inside_a_package_counts(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "package", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "a.js").write_text("a")
    first = hash_path(str(folder)).sha256
    (folder / "lib").symlink_to(elsewhere)
    assert hash_path(str(folder)).sha256 != first


def let_clock_tick(path: Path) -> None:
    """The file system's clock moves in steps: what happens within one cannot be told apart by time."""
    beside = path.with_name("beside")
    while True:
        beside.write_bytes(b"")
        if beside.stat().st_ctime_ns > path.stat().st_ctime_ns:
            return


@each_case("change", ["write", "replace", "remove", "touch and set back"], program=new_program)
def test_any_change_since_it_was_read_is_noticed(program: Path, change: str) -> None:
    sealed = hash_path(str(program))
    assert first_changed(sealed.files) == ""
    let_clock_tick(program)
    before = program.stat()
    if change == "write":
        program.write_bytes(b"\x7fELG")
    elif change == "replace":
        other = program.with_name("other")
        other.write_bytes(program.read_bytes())
        other.replace(program)
    elif change == "remove":
        program.unlink()
    else:
        program.write_bytes(b"\x7fELF")
        os.utime(program, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert first_changed(sealed.files) == str(program)


INNER = (
    "",
    "server.js",
    "lib",
    "lib/deep",
    "lib/deep/a.js",
    "__pycache__",
    "__pycache__/a.pyc",
    "node_modules/dep/index.js",
    ".git/hooks/x",
    "link.js",
    "linked",
    "linked/b.js",
    "chain.js",
)


def new_package(tmp_path: Path) -> Path:
    """A package with what is skipped by its checksum, and with links to files and folders outside of it."""
    package, outside = tmp_path.resolve() / "package", tmp_path.resolve() / "outside"
    for name in (
        "server.js",
        "lib/deep/a.js",
        "__pycache__/a.pyc",
        "node_modules/dep/index.js",
        ".git/hooks/x",
    ):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("x")
    for name in ("file/a.js", "folder/b.js", "middle/c.js"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text("x")
    (package / "link.js").symlink_to(outside / "file" / "a.js")
    (package / "linked").symlink_to("../outside/folder")
    (outside / "middle" / "link.js").symlink_to(outside / "middle" / "c.js")
    (package / "chain.js").symlink_to(outside / "middle" / "link.js")
    (package / "lib" / "circle").symlink_to(package)
    return package


package = pytest.fixture(new_package, name="package")


@pytest.mark.parametrize("how", WAYS)
@each_case("name", INNER, package=new_package)
def test_anything_in_a_pinned_folder_that_others_may_write_is_refused(
    package: Path, name: str, how: str
) -> None:
    assert FileInspector().find_tree_flaw(str(package)) == ""
    OPENINGS[how](package / name)
    assert FileInspector().find_tree_flaw(str(package))


@pytest.mark.parametrize("how", WAYS)
@each_case("folder", ["outside", "outside/file", "outside/folder", "outside/middle"], package=new_package)
def test_folders_on_the_way_to_what_links_lead_to_count_too(package: Path, folder: str, how: str) -> None:
    OPENINGS[how](package.parent / folder)
    assert FileInspector().find_tree_flaw(str(package))


def test_a_link_of_another_user_in_a_sticky_folder_can_be_turned_elsewhere(program: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    sticky = program.parent.parent / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    link = sticky / "link"
    link.symlink_to(program)
    assert find_flaw(str(link)) == ""
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    assert f"is behind the link {link}, which belongs to another user" in find_flaw(str(link))


def test_a_link_that_leads_nowhere_must_not_be_fulfilled_by_others(package: Path) -> None:
    shared = package.parent / "shared"
    shared.mkdir()
    (package / "plugin.js").symlink_to(shared / "plugin.js")
    assert FileInspector().find_tree_flaw(str(package)) == ""
    shared.chmod(0o1777)
    assert f"leads into {shared}, which is writable by everybody" in FileInspector().find_tree_flaw(
        str(package)
    )


def test_others_may_not_even_add_to_a_pinned_folder(package: Path) -> None:
    (package / "lib").chmod(0o1777)
    assert "is writable by everybody" in FileInspector().find_tree_flaw(str(package))


def test_a_folder_behind_a_link_is_sealed_by_its_contents(package: Path) -> None:
    first = hash_path(str(package))
    assert str(package / "linked" / "b.js") in {file.path for file in first.files}
    (package.parent / "outside" / "folder" / "b.js").write_text("changed")
    assert hash_path(str(package)).sha256 != first.sha256
