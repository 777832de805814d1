"""A child that may write a folder turns what is in it: links, environments and parents of protected files.

Each test is what a child could leave behind for its next start, or do to its own view.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.sandbox import PROTECTED_NAMES
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox import plan, runner
from switchboard_mcp.sandbox.decisive_files import decisive_files
from switchboard_mcp.sandbox.recorded_plans import plan_file
from switchboard_mcp.setup.hosts import HOSTS
from switchboard_mcp.transport.process.launcher import SpawnError
from tests.unit.sandbox.conftest import OWN_PYTHON, Sandboxed, words_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux")
TRY = "import os, sys\ntry:\n  {}\n  print('done')\nexcept OSError as problem:\n  print(problem.errno)\n"


async def attempt(sandboxed: Sandboxed, code: str, python: str = OWN_PYTHON, **words: Any) -> str:
    return (await sandboxed.run(words_of("workspace", **words), python, "-I", "-c", TRY.format(code))).strip()


@pytest.mark.parametrize("setting", ["read", "write"])
@pytest.mark.parametrize("folder", ["workspace", "cache"])
async def test_a_listed_path_that_is_a_link_of_the_child_leads_nowhere(
    sandboxed: Sandboxed, targets: dict[str, Any], setting: str, folder: str
) -> None:
    places = sandboxed.runner.places("child")
    above = places.workspace if folder == "workspace" else places.cache
    os.makedirs(above, exist_ok=True)
    os.symlink(targets["outside"], f"{above}/data")
    listed: dict[str, Any] = {"write": ["${workspace}", "${cache}"], "read": []}
    listed[setting].append(f"${{{folder}}}/data")
    assert await attempt(sandboxed, f"open({targets['outside'] + '/.ssh/id'!r})", **listed) == str(
        errno.ENOENT
    )
    assert sandboxed.last is not None
    assert [os.path.basename(path) for path in sandboxed.last.plan.dropped] == ["data"]


async def test_a_link_of_the_user_leads_where_he_points_it(sandboxed: Sandboxed, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    code = f"open({str(tmp_path / 'link' / 'new')!r}, 'w')"
    assert await attempt(sandboxed, code, write=["${workspace}", str(tmp_path / "link")]) == "done"
    assert (tmp_path / "real" / "new").exists()


async def test_an_environment_in_the_workspace_names_no_other_folders_and_stays_as_it_is(
    sandboxed: Sandboxed, targets: dict[str, Any]
) -> None:
    environment = sandboxed.workspace / ".venv"
    packages = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin" / "python").symlink_to(OWN_PYTHON)
    (environment / "pyvenv.cfg").write_text(f"home = {os.path.dirname(OWN_PYTHON)}\n")
    (packages / "x.pth").write_text(f"{targets['outside']}/.ssh\n")
    python = str(environment / "bin" / "python")
    assert await attempt(sandboxed, f"open({targets['outside'] + '/.ssh/id'!r})", python) == str(errno.ENOENT)
    (packages / "x.pth").unlink()
    (environment / "pyvenv.cfg").write_text(f"home = {targets['outside']}/.ssh/bin\n")
    assert await attempt(sandboxed, f"open({targets['outside'] + '/.ssh/id'!r})", python) == str(errno.ENOENT)
    code = f"open({str(packages / 'y.pth')!r}, 'w')"
    assert await attempt(sandboxed, code, python) == str(errno.EROFS)


async def test_a_script_in_the_workspace_cannot_be_replaced_by_its_child(sandboxed: Sandboxed) -> None:
    script = sandboxed.workspace / "server.py"
    script.write_text(TRY.format("os.rename(__file__, __file__ + 'x')"))
    text = await sandboxed.run(words_of("workspace"), OWN_PYTHON, "-I", str(script))
    assert text.strip() == str(errno.EBUSY)


async def test_parents_of_a_protected_file_cannot_be_renamed(sandboxed: Sandboxed) -> None:
    (sandboxed.workspace / "a" / "b" / ".git").mkdir(parents=True)
    protect = ["${workspace}/a/b/.git"]
    for old, refusal in (("a", errno.EBUSY), ("a/b", errno.EXDEV)):
        code = f"os.rename({str(sandboxed.workspace / old)!r}, {str(sandboxed.workspace / 'moved')!r})"
        assert await attempt(sandboxed, code, protect=protect) == str(refusal)
    code = f"open({str(sandboxed.workspace / 'a' / 'b' / 'new')!r}, 'w')"
    assert await attempt(sandboxed, code, protect=protect) == "done"


async def test_a_link_that_appears_before_the_mount_ends_the_start(
    sandboxed: Sandboxed, targets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = sandboxed.workspace.parent / "listed"
    listed.mkdir()
    real = plan.make_plan

    def turn(*arguments: Any) -> Any:
        made = real(*arguments)
        listed.rmdir()
        listed.symlink_to(targets["outside"])
        return made

    monkeypatch.setattr(runner, "make_plan", turn)
    with pytest.raises(SpawnError) as caught:
        await attempt(sandboxed, "pass", write=["${workspace}", str(listed)])
    assert (caught.value.where, caught.value.code) == ("sandbox:files", errno.ELOOP)


async def test_a_plan_that_became_wider_by_itself_is_refused_and_named(
    sandboxed: Sandboxed, targets: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    outside = targets["outside"]
    words = words_of("strict", read=[str(tmp_path / "link")])
    launch = runner.Launch([OWN_PYTHON, "-I", "-c", "pass"], dict(os.environ), str(sandboxed.workspace))
    assert await sandboxed.run(words, *launch.argv) == ""
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(outside)
    refused = await sandboxed.runner.start("child", words, launch, os.environ, lambda _: None)
    assert isinstance(refused, Failure)
    assert refused.code == "sandbox_unavailable"
    assert outside in refused.message
    assert "switchboard sandbox update child" in (refused.hint or "")
    # Another entry of the user is another record; the one of this entry is kept until it is forgotten.
    assert await sandboxed.run(words_of("strict", read=[outside]), *launch.argv) == ""
    assert isinstance(
        await sandboxed.runner.start("child", words, launch, os.environ, lambda _: None), Failure
    )
    os.remove(plan_file(sandboxed.runner.places("child")))
    assert await sandboxed.run(words, *launch.argv) == ""


async def change_all(
    sandboxed: Sandboxed, paths: list[Path], decisive: list[str], **words: Any
) -> dict[str, list[str]]:
    """Let a child replace, remove and write each path, and put a file into each folder; return what it could do."""
    code = """
import json, os, sys
done = {}
for path in json.loads(sys.argv[1]):
    for name, attempt in {
        "replace": lambda: (open("new", "w").close(), os.replace("new", path)),
        "rename": lambda: os.rename(path, path + ".moved"),
        "remove": lambda: os.unlink(path),
        "write": lambda: open(path, "a").write("x"),
        "fill": lambda: open(path + "/hooks", "w").write("x"),
    }.items():
        try:
            attempt()
        except OSError:
            continue
        done.setdefault(path, []).append(name)
print(json.dumps(done))
"""
    launch = runner.Launch(
        [OWN_PYTHON, "-I", "-c", code, json.dumps([str(path) for path in paths])],
        dict(os.environ),
        str(sandboxed.workspace),
    )
    started = await sandboxed.runner.start(
        "child", words_of("workspace", **words), launch, os.environ, lambda _: None, decisive
    )
    assert not isinstance(started, Failure), started
    found: dict[str, list[str]] = json.loads(await sandboxed.output_of(*started))
    return {str(Path(path).relative_to(sandboxed.workspace)): what for path, what in found.items()}


async def test_files_that_other_programs_obey_stay_as_they_are_at_any_depth_and_behind_links(
    sandboxed: Sandboxed,
) -> None:
    top, paths = sandboxed.workspace, []
    elsewhere = top / "real"
    elsewhere.mkdir()
    for folder in (top, top / "sub", top / "packages" / "lib" / "deep"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in PROTECTED_NAMES:
            (folder / name).write_text("as it was")
            paths.append(folder / name)
    linked = top / "linked"
    linked.mkdir()
    for name in (".git", ".vscode", ".claude", ".envrc", ".mcp.json"):
        (elsewhere / name[1:]).mkdir()
        (linked / name).symlink_to(elsewhere / name[1:])
        paths += [linked / name, elsewhere / name[1:]]
    paths += [linked, top / "packages"]
    assert await change_all(sandboxed, paths, []) == {"linked": ["fill"], "packages": ["fill"]}


async def test_what_switchboard_reads_to_decide_stays_as_it_is_under_any_name(sandboxed: Sandboxed) -> None:
    top = sandboxed.workspace
    (top / "conf").mkdir()
    (top / "other").mkdir()
    (top / "conf" / "mine.json").write_text(json.dumps({"discoverGlobs": ["servers/*/child.json"]}))
    (top / "link.json").symlink_to("conf/mine.json")
    (top / "servers" / "a").mkdir(parents=True)
    child = {"name": "a", "command": sys.executable, "args": [str(top / "other" / "server.py")]}
    (top / "servers" / "a" / "child.json").write_text(json.dumps(child))
    (top / "other" / "server.py").write_text("pass")
    (top / "free.txt").write_text("")
    workspace = load_workspace(str(top), str(top / "link.json"), {})
    names = (
        "conf/mine.json",
        "link.json",
        "servers",
        "servers/a/child.json",
        "other/server.py",
        "free.txt",
        "conf",
    )
    changed = await change_all(
        sandboxed, [top / name for name in names], decisive_files(workspace, os.environ)
    )
    assert changed.keys() == {"free.txt", "conf"}
    assert changed["conf"] == ["fill"]


async def test_a_child_in_its_own_folder_starts_in_every_preset_and_writes_what_is_not_about_it(
    sandboxed: Sandboxed,
) -> None:
    code = """
import json, os, sys
os.chdir(sys.argv[1])
done = []
for name in ("data.txt", "new/file", ".mcp.json", "CLAUDE.md", "original/.mcp.json", "server.py", "../other/x",
             "../../mail.txt"):
    try:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        open(name, "a").write("x")
        done.append(name)
    except OSError:
        pass
try:
    sees_mail = "secret" in open("../../mail.txt").read()
except OSError:
    sees_mail = False
print(json.dumps([os.listdir("."), done, sees_mail]))
"""
    for above in (".switchboard/mcps", "mcps"):
        folder = sandboxed.workspace / above / "kid"
        (folder / "original").mkdir(parents=True)
        (folder.parent / "other").mkdir()
        for name in (".mcp.json", "CLAUDE.md", "original/.mcp.json", "data.txt"):
            (folder / name).write_text("{}")
        (folder.parent.parent / "mail.txt").write_text("secret")
        (folder / "server.py").write_text(code)
        for preset in ("strict", "workspace", "browser"):
            words = words_of(preset)
            argv = [OWN_PYTHON, "-I", "server.py", str(folder)]
            launch = runner.Launch(argv, dict(os.environ), str(folder))
            started = await sandboxed.runner.start("kid", words, launch, os.environ, lambda _: None)
            assert not isinstance(started, Failure), (preset, started)
            names, done, sees_mail = json.loads(await sandboxed.output_of(*started))
            assert {".mcp.json", "server.py", "original"} <= set(names), (above, preset)
            allowed = [] if preset == "strict" else ["data.txt", "new/file"]
            assert [name for name in done if not name.startswith("..")] == allowed, (above, preset)
            # Beside its folder it has a temporary folder at most, or the workspace.
            assert not (folder.parent / "other" / "x").exists(), (above, preset)
            assert sees_mail is (above == "mcps" and preset != "strict"), (above, preset)


def test_the_files_of_all_hosts_that_setup_knows_are_protected() -> None:
    places = [path for host in HOSTS for location in host.locations for path in location.paths]
    places += [path for host in HOSTS for path in (*host.rules, *host.logins)]
    inside = {
        path.removeprefix("{workspace}/").partition("/")[0] for path in places if "{workspace}/" in path
    }
    assert inside
    assert inside - set(PROTECTED_NAMES) == set()
