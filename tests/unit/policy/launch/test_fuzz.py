"""Thousands of hostile entries, on the whole way from a file to the launcher: none of them starts anything.

SWITCHBOARD_FUZZ says how many. The launcher is a trap, so that what would be started is seen and nothing is.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.launch import Launched, launch
from switchboard_mcp.config.entries import EntryLocation as Where
from switchboard_mcp.config.entries import read_entry
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning, Workspace
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.governance import check_child, govern
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from tests.unit.policy.launch.launching import Place

Entry = dict[str, Any]
BATCH = 100
SETTINGS = partial(
    settings, suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate], deadline=None
)
CONFIGS = int(os.environ.get("SWITCHBOARD_FUZZ", "10000"))

SIGNS = [
    ";",
    "; rm -rf /",
    "&& id",
    "|| id",
    "| sh",
    "$(id)",
    "`id`",
    "${IFS-x}",
    "$((1))",
    "> /etc/x",
    "< x",
    "&",
]
UNSEEN = ["\n", "\r", "\0", "\x1b[2J", "\u202e", "\u200b", "\u2028", "\x7f", "\ud800"]
SHELLS = "sh bash dash zsh ksh fish csh tcsh busybox pwsh powershell.exe cmd.exe /bin/sh /usr/bin/bash bash5".split()
WRAPPERS = "env sudo su xargs nohup timeout ssh nice setsid unshare chroot find awk vim make".split()
INTERPRETERS = "node python python3.12 ruby perl php lua deno bun java Rscript".split()
CODE = (
    "-c -e -E -p -r --eval --eval=x --print --import --require=x --loader -i -x -Ic -pe -xc --run -".split()
)
STEERING = (
    "NODE_OPTIONS NODE_PATH PYTHONPATH PYTHONSTARTUP BASH_ENV ENV PATH PERL5OPT RUBYOPT HOME IFS "
    "NODE_TLS_REJECT_UNAUTHORIZED https_proxy npm_config_registry UV_INDEX_URL AWS_CONFIG_FILE KUBECONFIG".split()
)
LOADER = "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES ld_preload GCONV_PATH".split()
OUTSIDE = ["/", "/etc", "/tmp", "..", "../..", "sub/../..", "/proc/self/cwd/..", "out"]
ADDRESSES = [
    "http://evil.example/",
    "https://evil.example/",
    "https://good.example@evil.example/",
    "http://localhost.evil.example/",
    "ws://10.0.0.1/",
    "file:///etc/passwd",
    "https://good.example\\@evil.example",
    "https://good.example:444/",
    "javascript:alert(1)",
]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PUNCTUATION = " -_./=:,@%+~!#?*'\"\\()[]{}^$&|;<>`"


def anything(random: Random) -> str:
    """Any text: words, punctuation, and characters of all planes."""
    kinds = (
        lambda: random.choice(LETTERS),
        lambda: random.choice(PUNCTUATION),
        lambda: chr(random.choice((random.randrange(0x20), random.randrange(0x80, 0xD800), 0x1F600))),
    )
    return "".join(random.choices(kinds, weights=(6, 3, 1))[0]() for _ in range(random.randrange(20)))


def good() -> Entry:
    """The entry that was approved."""
    return {
        "command": "node",
        "args": ["index.js", "--root", "data"],
        "env": {"TOKEN": "x", "NODE_OPTIONS": "--no-warnings"},
    }


def sign(random: Random, entry: Entry, word: str) -> None:
    at = random.randint(0, 2)
    entry["args"][at] += random.choice(SIGNS) + word


def unseen(random: Random, entry: Entry, word: str) -> None:
    entry["args"][random.randint(0, 2)] = word + random.choice(UNSEEN)


def shell(random: Random, entry: Entry, word: str) -> None:
    entry["command"] = random.choice(SHELLS)
    entry["args"] = ["-c", word, *entry["args"]][random.randint(0, 3) :]


def wrapper(random: Random, entry: Entry, word: str) -> None:
    entry["command"] = random.choice(WRAPPERS)
    entry["args"] = [random.choice(INTERPRETERS), *entry["args"]]


def code(random: Random, entry: Entry, word: str) -> None:
    entry["command"] = random.choice(INTERPRETERS)
    entry["args"] = [random.choice(CODE), word, *entry["args"]]


def steering(random: Random, entry: Entry, word: str) -> None:
    entry["env"][random.choice(STEERING)] = f"{word}!"


def loader(random: Random, entry: Entry, word: str) -> None:
    entry["env"][random.choice(LOADER)] = word


def variable(random: Random, entry: Entry, word: str) -> None:
    entry["env"][f"X{word}"] = word


def folder(random: Random, entry: Entry, word: str) -> None:
    entry["cwd"] = random.choice(OUTSIDE)


def path(random: Random, entry: Entry, word: str) -> None:
    entry["command"] = random.choice(["./", "../", "bin/", "/tmp/../", "~/", "-", "x ", "$"]) + word


def argument(random: Random, entry: Entry, word: str) -> None:
    entry["args"].insert(random.randint(0, 3), word)


def address(random: Random, entry: Entry, word: str) -> None:
    del entry["command"], entry["args"]
    entry["url"] = random.choice(ADDRESSES)


def program(random: Random, entry: Entry, word: str) -> None:
    entry["command"] = f"{word}x"


WRONGS = (
    sign,
    unseen,
    shell,
    wrapper,
    code,
    steering,
    loader,
    variable,
    folder,
    path,
    argument,
    address,
    program,
)


def hostile(random: Random) -> tuple[str, Entry]:
    """A child's name and entry: the approved one with one thing wrong, in one of the dialects."""
    entry = good()
    random.choice(WRONGS)(random, entry, anything(random))
    if "url" not in entry and random.random() < 0.5:
        entry["command"] = {"cmd": entry["command"], "args": entry.pop("args"), "env": entry.pop("env")}
    return random.choice(("good", "good", "good", "other")), entry


class Trap:
    """A launcher that starts nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.spawned: list[list[str]] = []

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> object:
        self.spawned.append(list(argv))
        return SimpleNamespace(pid=0)


class Ground:
    """A governed workspace on whose launcher the trap stands."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        (self.place.folder / "out").symlink_to("/")
        self.guard: LaunchPolicy = self.place.guard()
        self.trap = Trap()
        self.services = cast(
            ChildContext, SimpleNamespace(launch_policy=self.guard, launcher=self.trap, environ={})
        )

    def read(self, name: str, entry: Entry) -> ChildSpec | None:
        warnings: list[ConfigWarning] = []
        where = Where(
            str(self.place.folder / "switchboard.config.json"), f"mcpServers.{name}", str(self.place.folder)
        )
        return read_entry(entry, where, warnings, name=name)

    async def launch(self, spec: ChildSpec) -> Launched | Failure:
        filled = expand(spec, self.guard.environ)
        return filled if isinstance(filled, Failure) else await launch(filled, self.services, 10.0)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"))


async def test_an_approved_start_reaches_the_launcher(ground: Ground) -> None:
    spec = ground.read("good", copy.deepcopy(good()))
    assert spec is not None
    assert check_child(spec, ground.guard) is None
    assert isinstance(await ground.launch(spec), Launched)
    assert ground.trap.spawned == [[str(ground.place.node), str(ground.place.script), "--root", "data"]]
    ground.trap.spawned.clear()


def test_no_hostile_entry_reaches_the_launcher(ground: Ground) -> None:
    seen: set[str] = set()

    async def attack(random: Random) -> None:
        for _ in range(BATCH):
            name, entry = hostile(random)
            seen.add(repr((name, entry)))
            spec = ground.read(name, entry)
            if spec is None:
                continue  # left out before there is anything to judge
            problem = check_child(spec, ground.guard)
            assert isinstance(problem, Failure), entry
            assert problem.code in ("child_not_allowed", "launch_refused"), problem
            # Should a child exist all the same, its launch is refused for itself.
            assert isinstance(await ground.launch(spec), Failure), entry

    # A seed for each batch: drawn one by one, most entries of a long run would be like others.
    @SETTINGS(max_examples=CONFIGS * 3 // 2 // BATCH + 1)
    @given(st.binary(min_size=16, max_size=16))
    def run(seed: bytes) -> None:
        asyncio.run(attack(Random(seed)))
        assert ground.trap.spawned == []

    run()
    assert len(seen) >= CONFIGS  # some come twice


@SETTINGS(max_examples=max(1, CONFIGS // 10))
@given(
    st.lists(
        st.sampled_from(
            [*SHELLS, *WRAPPERS, *INTERPRETERS, *CODE, *SIGNS, "/bin/sh", "/x.js", "index.js", "node"]
        ),
        max_size=4,
    ),
    st.integers(0, 3),
)
def test_no_hostile_approval_reaches_the_launcher(ground: Ground, launched: list[str], replaces: int) -> None:
    guard = ground.place.guard(launch=launched, replaces=replaces)
    services = cast(ChildContext, SimpleNamespace(launch_policy=guard, launcher=ground.trap, environ={}))
    assert isinstance(asyncio.run(launch(ground.place.spec(), services, 10.0)), Failure)
    assert ground.trap.spawned == []


def test_a_workspace_is_judged_as_its_children_are(ground: Ground) -> None:
    specs = [ground.place.spec(name="bad", args=["index.js", "; rm -rf /"])]
    config = structs.replace(Config(), governance=ground.guard.governance)
    workspace = Workspace(folder=str(ground.place.folder), config=config, children=specs, warnings=[])
    posture = govern(workspace, {})
    assert posture.workspace.children == []
    assert posture.workspace.absent["bad"].code == "launch_refused"
