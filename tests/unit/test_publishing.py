"""The files that publish Switchboard say what the rest of the repository says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from tests.cases import each_case

REPO = Path(__file__).resolve().parent.parent.parent
WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(name: str) -> dict[str, Any]:
    found: dict[str, Any] = read(REPO / ".github" / "workflows" / name)["jobs"]
    return found


@each_case("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_and_every_job_has_an_end(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= (120 if name == "soak" else 45), name
        for step in job["steps"]:
            if "uses" in step:
                assert PINNED.fullmatch(step["uses"]), step["uses"]
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False, name


def test_tests_run_on_every_system_and_every_python_we_name() -> None:
    matrix = jobs("ci.yml")["platforms"]["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert matrix["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_only_the_job_that_publishes_gets_an_identity_and_it_runs_no_code_of_ours() -> None:
    release = jobs("release.yml")
    assert {name for name, job in release.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert release["publish"]["environment"] == "pypi"
    assert not [step for step in release["publish"]["steps"] if "run" in step or "checkout" in step["uses"]]
    assert release["version"]["needs"] == ["test", "soak"]


def test_a_release_is_started_by_hand_on_main_and_built_from_its_tag() -> None:
    workflow = read(REPO / ".github" / "workflows" / "release.yml")
    assert workflow[True] == {"workflow_dispatch": None}  # YAML 1.1 reads the key `on` as true
    release = workflow["jobs"]
    assert release["test"]["if"] == "github.ref == 'refs/heads/main'"
    checkout = release["build"]["steps"][0]
    assert checkout["with"]["ref"] == "${{ needs.version.outputs.tag }}"
    assert release["publish"]["needs"] == ["version", "build"]


# Calls that install something. Each must be bound to hashes, or install only what is here.
INSTALLS = re.compile(r"\bpip3? (?:install|wheel|download|sync)\b|\b(?:pipx|uvx|npx)\b|\bnpm (?:install|i)\b")
BOUND = re.compile(
    r"--require-hashes -r requirements/\w+\.lock$|--no-deps .*--no-(?:build-isolation|index)\b"
)


def commands(text: str) -> list[str]:
    """Shell commands of a file, with their continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [part.strip() for line in joined.splitlines() for part in re.split(r"&&|\|\||;", line)]


@each_case(
    "path", [REPO / "Dockerfile", *WORKFLOWS, *(REPO / "examples").rglob("*.yml")], ids=lambda path: path.name
)
def test_every_published_artifact_installs_by_hash(path: Path) -> None:
    loose = [
        command
        for command in commands(path.read_text(encoding="utf-8"))
        if not command.startswith("#") and INSTALLS.search(command) and not BOUND.search(command)
    ]
    assert loose == []


@each_case(
    ("command", "bound"),
    [
        ("python -m pip install --require-hashes -r requirements/dev.lock", True),
        ("pip install --no-deps --no-build-isolation -e .", True),
        ("pip install --no-deps --no-index /wheels/*.whl", True),
        ("pip install x", False),
        ("pip install --require-hashes -r requirements/dev.lock x", False),
        ("pip install --no-deps x", False),
        ('pip install "$(ls /wheels/*.whl)[http]"', False),
        ("pipx run --spec x==1 y", False),
        ("uvx x", False),
        ("npm install x", False),
    ],
)
def test_an_install_without_hashes_is_recognised(command: str, bound: bool) -> None:
    assert INSTALLS.search(command)
    assert bool(BOUND.search(command)) is bound


def test_the_image_has_the_versions_that_were_tested_and_every_package_of_its_extras() -> None:
    pinned = re.compile(r"^([\w.-]+)==([^ ;]+)", re.MULTILINE)
    image, dev = (
        dict(pinned.findall((REPO / "requirements" / f"{name}.lock").read_text()))
        for name in ("image", "dev")
    )
    assert image.items() <= dev.items()
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"]]
    for extra in ("fast", "http", "otel", "redis"):
        needed += project["optional-dependencies"][extra]
    assert {re.split(r"[<>=;\[ ]", one)[0] for one in needed} <= set(image)


def test_the_version_is_where_the_release_looks_for_it() -> None:
    settings = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["semantic_release"]
    (place,) = settings["version_variables"]
    file, _, variable = place.partition(":")
    assert re.search(rf'^{variable} = "\d+\.\d+\.\d+"$', (REPO / file).read_text(), re.MULTILINE)


def test_every_form_and_hook_can_be_read_and_runs_what_is_there() -> None:
    for path in (REPO / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert isinstance(read(path), dict)
    for hook in read(REPO / ".pre-commit-config.yaml")["repos"][0]["hooks"]:
        assert (REPO / hook["entry"].split()[0]).exists(), hook


def test_the_container_runs_as_nobody_in_particular_and_tells_its_health() -> None:
    last = (REPO / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (.+)$", last, re.MULTILINE)
    assert users
    assert users[-1] not in ("root", "0")
    assert "\nHEALTHCHECK " in last
