"""A child that may write a folder turns what is in it: links, environments and parents of protected files.

Each test is what a child could leave behind for its next start, or do to its own view.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox import plan, runner
from switchboard_mcp.sandbox.recorded_plans import plan_file
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
