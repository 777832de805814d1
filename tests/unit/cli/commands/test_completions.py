"""Completions: made from the table of commands, and run in the shells that are here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from switchboard_mcp.cli.commands.completions import SHELLS, entries
from switchboard_mcp.cli.index import ALL_COMMANDS, parser_for
from tests.cases import each_case


def test_every_command_and_every_flag_is_in_each_script() -> None:
    for shell, write in SHELLS.items():
        script = write(entries())
        for name in ALL_COMMANDS:
            assert name.split()[-1] in script, (shell, name)
            for flag in parser_for(name).flags:
                shown = f"-l {flag[2:]}" if shell == "fish" else flag
                assert shown in script, (shell, name, flag)


@each_case("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_a_script_is_one_that_its_shell_can_read(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(SHELLS[shell](entries()))
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def completed(tmp_path: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = tmp_path / "script"
    script.write_text(SHELLS["bash"](entries()))
    line = " ".join(f"'{word}'" for word in ("switchboard", *words))
    code = (
        f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        '_switchboard; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == ""
    return done.stdout.split()


@each_case(
    ("words", "offered"),
    [
        (("intro",), ["introspect"]),
        (("introspect", "github", "--verb"), ["--verbosity"]),
        (("introspect", "github", "--verbosity", "sig"), ["signature"]),
        (("audit", "ver"), ["verify"]),
        (("mail", "se"), ["send", "search"]),
        (("mail", "send", "ada", "--act"), ["--action"]),
        (("completions", "f"), ["fish"]),
        (("--no-such",), []),
    ],
)
def test_bash_offers_what_fits(tmp_path: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(tmp_path, *words) == offered


def test_bash_offers_folders_where_a_folder_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "hello.txt").touch()
    assert completed(tmp_path, "list", "--workspace", "he") == ["here"]
