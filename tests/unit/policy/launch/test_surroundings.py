"""Nothing that somebody puts beside an approved script runs with it: tried with real interpreters.

After each plant the child is either refused, or it runs and the plant does not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from switchboard_mcp.config.files.approvals import Approval, Approvals
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sections import GovernanceSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.launch.approval import propose
from switchboard_mcp.policy.launch.rules import ApprovedLaunch, LaunchPolicy
from tests.unit.policy.launch.launching import Place

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
PY_MARK = "open(r'{mark}', 'w').write('x')\n"
JS_MARK = "require('fs').writeFileSync('{mark}', 'x');\n"
# Python imports each of these at its start or when the script says so; all are in the standard library.
SCRIPT = "import json, typing, random\nimport asyncio\nprint('served', json.dumps([random.random() > 2]))\n"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as a tool has it, with its own site-packages."""
    place = tmp_path_factory.mktemp("env").resolve() / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    package = place / "lib" / VERSION / "site-packages" / "served"
    package.mkdir()
    (package / "__init__.py").write_text(
        "def main():\n    import json\n    print('served', json.dumps([]))\n"
    )
    (package / "__main__.py").write_text("from served import main\nmain()\n")
    shim = place / "bin" / "served"
    shim.write_text(f"#!{place}/bin/python\nimport sys\nfrom served import main\nsys.exit(main())\n")
    shim.chmod(0o755)
    return place


class Trial:
    """An approved child, the marker that a plant would leave, and its run."""

    def __init__(self, place: Place, spec: ChildSpec) -> None:
        self.spec, self.mark, self.home = spec, place.folder.parent / "mark", place.folder.parent / "home"
        self.home.mkdir(exist_ok=True)
        governed = GovernanceSettings(mode="governed", env=["HOME", "PATH"])
        environ = {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        policy = structs.replace(place.guard(governed), environ=environ, approvals=Approvals())
        approval = propose(spec, policy, frozenset(spec.env))
        assert isinstance(approval, Approval), approval.message
        self.policy: LaunchPolicy = structs.replace(
            policy, approvals=Approvals(children={spec.name: approval})
        )
        assert "served" in self.run()

    def run(self) -> str:
        """The output of the child, or the refusal."""
        launch = self.policy.approve(self.spec)
        if isinstance(launch, Failure):
            return launch.message
        assert isinstance(launch, ApprovedLaunch)
        done = subprocess.run(
            launch.argv, env=launch.env, cwd=launch.cwd, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def plant(self, path: Path, code: str = PY_MARK) -> str:
        """Put a file somewhere, and run the child."""
        self.put(path, code)
        return self.run()

    def put(self, path: Path, code: str = PY_MARK) -> None:
        """Put a file somewhere that leaves a mark if it is run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code.replace("{mark}", str(self.mark)))


MODULES = (
    *("json.py", "typing.py", "random.py", "asyncio.py", "encodings.py", "re/__init__.py"),
    *("sitecustomize.py", "usercustomize.py"),
)
CWD_FILES = (".npmrc", "uv.toml", "pyproject.toml", "pip.conf", "setup.cfg", "evil.pth", "pyvenv.cfg", ".env")
USER_SITE = f".local/lib/{VERSION}/site-packages"


def python_script(place: Place, python: str, **more: object) -> ChildSpec:
    folder = place.folder / "server"
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(SCRIPT)
    return structs.replace(place.spec(command=python, args=["server/main.py"], env={}), **more)


@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["plain", "variable"])
def test_nothing_beside_a_python_script_runs_with_it(
    place: Place, base: Path, variables: dict[str, str]
) -> None:
    trial = Trial(place, python_script(place, str(base / "bin" / "python"), env=variables))
    for folder in (place.folder / "server", place.folder, trial.home / USER_SITE):
        for name in (*MODULES, *CWD_FILES):
            trial.put(folder / name)
    assert "served" in trial.run()
    assert not trial.mark.exists()


@pytest.mark.parametrize("command", ["shim", "-m"])
def test_nothing_beside_a_tool_or_a_module_runs_with_it(place: Place, base: Path, command: str) -> None:
    program = str(base / "bin" / ("served" if command == "shim" else "python"))
    trial = Trial(
        place, place.spec(command=program, args=[] if command == "shim" else ["-m", "served"], env={})
    )
    planted = [base / "bin" / name for name in MODULES]
    for folder in (place.folder, trial.home / USER_SITE):
        planted += [folder / name for name in (*MODULES, *CWD_FILES)]
    for path in planted:
        trial.put(path)
    try:
        assert "served" in trial.run()
        assert not trial.mark.exists()
        trial.put(base / "bin" / "pyvenv.cfg")
        assert "is not what was approved" in trial.run()
    finally:
        for path in (*planted, base / "bin" / "pyvenv.cfg"):
            path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "name", ["evil.pth", "sitecustomize.py", "usercustomize.py", "sitecustomize/__init__.py"]
)
def test_a_new_startup_file_of_an_environment_stops_its_tools(place: Place, base: Path, name: str) -> None:
    trial = Trial(place, place.spec(command=str(base / "bin" / "served"), args=[], env={}))
    path = base / "lib" / VERSION / "site-packages" / name
    try:
        output = trial.plant(path, f"import os; {PY_MARK}" if name.endswith(".pth") else PY_MARK)
        assert "is not what was approved" in output
        assert not trial.mark.exists()
    finally:
        path.unlink()
        if path.name == "__init__.py":
            path.parent.rmdir()
    assert "served" in trial.run()


def test_modules_that_a_script_loads_are_pinned_with_their_folder(place: Place, base: Path) -> None:
    spec = python_script(place, str(base / "bin" / "python"))
    (place.folder / "server" / "main.py").write_text("import helper, json\nhelper.run()\n")
    (place.folder / "server" / "helper.py").write_text("def run():\n    print('served')\n")
    trial = Trial(place, spec)
    assert "is not what was approved" in trial.plant(place.folder / "server" / "json.py")
    assert not trial.mark.exists()


def test_a_script_that_loads_its_neighbours_needs_a_folder_of_its_own(place: Place, base: Path) -> None:
    (place.folder / "main.py").write_text("import helper\n")
    (place.folder / "helper.py").write_text("")
    spec = place.spec(command=str(base / "bin" / "python"), args=["main.py"], env={})
    refused = propose(spec, place.guard(), frozenset())
    assert isinstance(refused, Failure)
    assert "put the script into a folder of its own" in refused.message


def test_an_approval_without_isolation_is_not_enough(place: Place) -> None:
    python, script = place.bin / "python3", place.folder / "server.py"
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    script.write_text("")
    for flags, expected in (
        ((), "approve the child again"),
        (("-u",), "approve the child again"),
        (("-I",), ""),
    ):
        launch = [str(python), *flags, str(script)]
        guard = place.guard(launch=launch, files=[place.pin(python), place.pin(script)])
        problem = guard.check(place.spec())
        assert expected in (problem.message if problem is not None else "")
        assert bool(expected) == (problem is not None)


Planting = Callable[[Trial, Place], str]


def package_json(trial: Trial, place: Place) -> str:
    return trial.plant(place.folder / "server" / "package.json", '{"type": "module", "main": "x.js"}')


def nearer_package(trial: Trial, place: Place) -> str:
    (place.folder / "server" / "node_modules" / "dep").mkdir(parents=True)
    return trial.plant(place.folder / "server" / "node_modules" / "dep" / "index.js", JS_MARK)


def shadowed_core(trial: Trial, place: Place) -> str:
    trial.put(place.folder / "server" / "fs.js", JS_MARK)
    return trial.plant(place.folder / "fs.js", JS_MARK)


def settings_of_npm(trial: Trial, place: Place) -> str:
    trial.put(place.folder / ".npmrc", "node-options=--require=./evil.js\nscript-shell=./evil\n")
    return trial.plant(place.folder / "evil.js", JS_MARK)


def settings_of_node(trial: Trial, place: Place) -> str:
    trial.put(place.folder / ".env", "NODE_OPTIONS=--require=./evil.js\n")
    trial.put(place.folder / "node.config.json", '{"nodeOptions": {"import": "./evil.js"}}')
    return trial.plant(place.folder / "evil.js", JS_MARK)


@pytest.mark.parametrize(
    "plant", [package_json, nearer_package, shadowed_core, settings_of_npm, settings_of_node]
)
def test_nothing_beside_a_node_script_runs_with_it(place: Place, plant: Planting) -> None:
    (place.folder / "node_modules" / "dep").mkdir(parents=True)
    (place.folder / "node_modules" / "dep" / "index.js").write_text("module.exports = 'served'\n")
    (place.folder / "server").mkdir()
    (place.folder / "server" / "main.js").write_text("require('fs'); console.log(require('dep'))\n")
    trial = Trial(place, place.spec(command="/usr/bin/node", args=["server/main.js"], env={}))
    output = plant(trial, place)
    assert not trial.mark.exists()
    assert any(words in output for words in ("served", "is not what was approved", "approve the child again"))


def test_files_that_a_node_script_loads_are_pinned_with_their_folder(place: Place) -> None:
    (place.folder / "server" / "lib").mkdir(parents=True)
    (place.folder / "server" / "main.js").write_text("require('./lib/a.js')\n")
    (place.folder / "server" / "lib" / "a.js").write_text("console.log('served')\n")
    trial = Trial(place, place.spec(command="/usr/bin/node", args=["server/main.js"], env={}))
    assert "is not what was approved" in trial.plant(place.folder / "server" / "lib" / "a.js", JS_MARK)
    assert not trial.mark.exists()
