"""The manifest of a program: what it can call, and which programs hide it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic_monty import Monty, MontyComplete, MontyError

from switchboard_mcp.programs.checking import hints, manifest
from tests.cases import each_case

MODULES = {"github": ["list_issues", "create_issue"], "slack": ["post"], "time_suite": ["now"]}
LIST, CREATE, POST = ("github", "list_issues"), ("github", "create_issue"), ("slack", "post")


def analyse(code: str) -> dict[str, Any]:
    found = manifest.analyse(code, MODULES)
    json.dumps(found)
    return found


def calls(code: str) -> set[tuple[str, ...]]:
    found = analyse(code)
    assert not found["refusals"], found["refusals"]
    return {tuple(call) for call in found["calls"]}


@each_case(
    ("code", "expected"),
    [
        ("1 + 1", set()),
        ("import github", set()),
        ("import github\nawait github.list_issues(repo='a')", {LIST}),
        ("import github as g\nawait g.create_issue()", {CREATE}),
        ("from github import list_issues\nawait list_issues()", {LIST}),
        ("from github import list_issues as li, create_issue\nawait li()", {LIST}),
        ("from github import create_issue as make\nfs = [make]\nawait fs[0]()", {CREATE}),
        ("import github\nfs = {'a': github.create_issue}\nawait fs['a']()", {CREATE}),
        ("import github\ndef f(call=github.create_issue): return call()\nawait f()", {CREATE}),
        ("import github\nclass A:\n    make = github.create_issue\nawait A.make()", {CREATE}),
        ("import github\nf'{github.create_issue}'", {CREATE}),
        ("import github\nf = lambda: github.create_issue()\nawait f()", {CREATE}),
        ("def f():\n    import github as g\n    return g.create_issue()\nawait f()", {CREATE}),
        ("import github, slack\nawait github.list_issues()\nawait slack.post()", {LIST, POST}),
        ("import ｇithub\nawait github.ｌist_issues()", {LIST}),  # Python reads plain letters
        ("import github\nx = (y := github.list_issues)\nawait y()", {LIST}),
        ("import github\n[await github.list_issues(repo=r) for r in 'ab']", {LIST}),
        ("import github, json\njson.dumps(await github.list_issues())", {LIST}),
        ("import github\nd = {'github': 1}\nd['github']\nf(github=2)", set()),
        ("import github\nx.github = 1", set()),
        (
            "import github\ntry:\n    await github.list_issues()\nexcept Exception as e:\n    type(e).__name__",
            {LIST},
        ),
    ],
)
def test_a_mention_counts_as_a_call(code: str, expected: set[tuple[str, ...]]) -> None:
    assert calls(code) == expected


@each_case(
    ("code", "words"),
    [
        ("from github import *", "hides"),
        ("import github.issues", "import github"),
        ("import gitub", "no module `gitub`"),
        ("from . import x", "no package"),
        ("import github\ng = github", "not a value"),
        ("import github\nf(github)", "not a value"),
        ("import github\n[github]", "not a value"),
        ("import github\ngetattr(github, 'create_' + 'issue')()", "not a value"),
        ("import github\ngithub.delete_all()", "no function `delete_all`"),
        ("from github import delete_all", "no function `delete_all`"),
        ("import github\ngithub.list_issues = github.create_issue", "replaced"),
        ("import github\ngithub = 1", "an import"),
        ("from github import list_issues\nlist_issues = 1", "an import"),
        ("import github\ndef f(github): return github", "an import"),
        ("import github\nfor github in []: pass", "an import"),
        ("import github\n[github for github in []]", "not a value"),
        ("import github\ntry:\n    pass\nexcept Exception as github: pass", "an import"),
        ("import github\nmatch 1:\n    case github: pass", "an import"),
        ("import github\nmatch {}:\n    case {**github}: pass", "an import"),
        ("import github\nmatch []:\n    case [*github]: pass", "an import"),
        ("import github\n(github := 1)", "an import"),
        ("import github\ndef github(): pass", "an import"),
        ("import github\nclass github: pass", "an import"),
        ("import github\ndef f():\n    global github", "an import"),
        ("import github\ndel github", "an import"),
        ("import github\nwith f() as github: pass", "an import"),
        ("import github\nimport slack as github", "Two imports"),
        ("import github as json\nimport json", "Two imports"),
        ("from github import list_issues as x\nfrom slack import post as x", "Two imports"),
        ("eval('1')", "eval"),
        ("exec('import github')", "exec"),
        ("f = eval", "eval"),
        ("ｅval('1')", "eval"),  # Python reads plain letters
        ("__import__('github')", "__import__"),
        ("globals()['x']", "globals"),
        ("vars()", "vars"),
        ("compile('1', '', 'eval')", "compile"),
        ("def f(eval): pass", "forbidden"),
        ("().__class__", "__class__"),
        ("f.__globals__", "__globals__"),
        ("import github\ngithub.__dict__", "__dict__"),
        ("x = (", "never closed"),
        ("x = 1\x00", "null bytes"),
    ],
)
def test_a_program_that_hides_what_it_calls_is_refused(code: str, words: str) -> None:
    found = analyse(code)["refusals"]
    assert words in " ".join(one["message"] for one in found)


def test_a_finding_has_the_place_in_the_source() -> None:
    found = analyse("import github\nx = 1\nawait github.list_isues()")["refusals"]
    assert [(one["line"], one["name"], one["module"]) for one in found] == [(3, "list_isues", "github")]


def test_literal_arguments_are_found() -> None:
    code = (
        "import github as g\nfrom slack import post\n"
        "await g.create_issue(title='a', labels=['x', 1], n=-2, o={'k': [None, True]}, other=x, f=f'{x}')\n"
        "await post(text='b', **more)"
    )
    found = analyse(code)["literals"]
    assert [(one["module"], one["function"], one["line"]) for one in found] == [(*CREATE, 3), (*POST, 4)]
    assert found[0]["arguments"] == {"title": "a", "labels": ["x", 1], "n": -2, "o": {"k": [None, True]}}
    assert found[1]["arguments"] == {"text": "b"}


# What models write, and a word of the hint. All of it fails in the interpreter.
HINTS = [
    ("def g():\n    yield 1\ng()", "list"),
    ("async def f():\n    async for x in []: pass\nf", "async for"),
    ("async def f():\n    async with f() as x: pass\nf", "async with"),
    ("async def f():\n    return [x async for x in []]\nf", "comprehensions"),
    ("d = {1: 2}\ndel d[1]", "pop"),
    ("try:\n    1\nexcept* ValueError:\n    2", "except"),
    ("class A: pass\nclass B(A): pass", "inherit"),
    ("class MyError(Exception): pass", "inherit"),
    ("class A:\n    @property\n    def x(self): return 1\nA().x", "plain method"),
    ("class A:\n    @staticmethod\n    def x(): return 1\nA.x()", "plain method"),
    ("class A:\n    def __len__(self): return 3\nlen(A())", "__len__"),
    (
        "import asyncio\nasync def f(): pass\nawait asyncio.gather(f(), return_exceptions=True)",
        "try and except",
    ),
    ("import asyncio\nasync def f(): pass\nawait asyncio.create_task(f())", "gather"),
    ("from asyncio import wait_for", "gather"),
    ("import asyncio\nasyncio.Semaphore(3)", "gather"),
    ("import asyncio\nasync def f():\n    async with asyncio.TaskGroup() as g: pass\nawait f()", "gather"),
    ("next(x for x in [1])", "[0]"),
    ("next((x for x in [1]), None)", "[0]"),
    ("import json\njson.dumps({1}, default=str)", "default"),
    ("from json import dumps\ndumps({1}, default=str)", "default"),
    ("import re\nre.sub('a', lambda m: 'b', 'a')", "function"),
    ("'a'.translate({97: 'b'})", "replace"),
    ("str.maketrans('a', 'b')", "replace"),
    ("bytes([1])", "fromhex"),
    ("import dataclasses\ndataclasses.asdict(1)", "by hand"),
    ("from dataclasses import asdict", "by hand"),
    ("from collections.abc import Iterable", "annotations"),
    ("from collections import OrderedDict", "keeps its order"),
    ("from functools import cmp_to_key", "key function"),
    ("open('x')", "suites only"),
    ("import os\nos.environ['HOME']", "suites only"),
    ("exit()", "last expression"),
    ("callable(print)", "isinstance"),
    ("class A:\n    def f(self): super()\nA().f()", "inherit"),
]


@pytest.fixture(scope="module")
def pool() -> Any:
    with Monty(min_processes=1, max_processes=1, request_timeout=30) as found:
        yield found


def runs(pool: Any, code: str) -> bool:
    """Whether the interpreter runs a program to its end."""
    with pool.checkout(os_policy={"sleep": "zero"}) as session:
        try:
            step = session.feed_start(code)
            while not isinstance(step, MontyComplete):
                if getattr(step, "is_os_function", False) and step.function_name == "import":
                    step = step.resume_auto()
                elif getattr(step, "is_os_function", False):
                    step = step.resume_not_handled()
                elif type(step).__name__ == "NameLookupSnapshot":
                    step = step.resume()
                else:
                    step = step.resume({"exc_type": "NameError", "message": "not defined"})
        except MontyError:
            return False
    return True


@each_case(("code", "word"), HINTS)
def test_code_that_the_interpreter_does_not_run_gets_a_hint(pool: Any, code: str, word: str) -> None:
    found = analyse(code)["hints"]
    assert any(word in one["message"] for one in found), found
    assert not runs(pool, code)


@each_case("module", ["statistics", "requests", "urllib.parse", "string", "enum", "numpy"])
def test_a_missing_module_gets_a_hint(pool: Any, module: str) -> None:
    found = analyse(f"import {module}")["refusals"]
    assert f"no module `{module}`. " in found[0]["message"]
    assert not runs(pool, f"import {module}")


# What runs, and must not get a hint.
FINE = [
    "class A:\n    def __init__(self): self.x = 1\n    def __eq__(self, o): return True\nA() == A()",
    "from dataclasses import dataclass, field\n@dataclass\nclass A:\n    x: list = field(default_factory=list)\nA()",
    "import asyncio\nasync def f(): return 1\nawait asyncio.gather(f(), f())",
    "import asyncio\nasync def main(): return 1\nasyncio.run(main())",
    "next(iter([1]))",
    "import json\njson.dumps({}, indent=2, sort_keys=True)",
    "def open(x): return x\nopen(1)",
    "import re\nre.sub('a', 'b', 'a')",
    "from collections import Counter, defaultdict, deque\nCounter('a')",
    "list(map(str, [1]))",
    "match {'a': 1}:\n    case {'a': x}: y = x\ny",
    "from functools import lru_cache\n@lru_cache\ndef f(): return 1\nf()",
    "import os.path\nos.path.join('a', 'b')",
    "from __future__ import annotations\n1",
    "return 5",
]


@each_case("code", FINE)
def test_code_that_runs_gets_no_hint(pool: Any, code: str) -> None:
    found = analyse(code)
    assert not found["hints"]
    assert not found["refusals"]
    assert runs(pool, code)


def test_programs_that_run_although_the_checker_refuses_them_are_listed() -> None:
    code = "from __future__ import annotations\nif x:\n    return 1\ndef f():\n    return 2"
    assert sorted(analyse(code)["allowed"]) == [[1, "unresolved-import"], [3, "invalid-syntax"]]


@each_case(
    ("code", "word"),
    [
        ('x = f"{d["a"]}"', "other kind of quotes"),
        ("type X = int", "alias"),
        ("def f[T](x: T): pass", "leave"),
    ],
)
def test_newer_syntax_gets_a_hint(code: str, word: str) -> None:
    found = analyse(code)
    messages = [one["message"] for one in (*found["refusals"], *found["hints"])]
    assert sys.version_info >= (3, 12) or any(word in message for message in messages)


@each_case(
    "code",
    [
        "(" * 50_000 + ")" * 50_000,
        "-" * 100_000 + "1",
        "[" * 3_000 + "]" * 3_000,
        "x = " + "+".join(["1"] * 60_000),
        "a" + ".b" * 60_000,
        "import github\n" + "github\n" * 6_000,
        "import github\n" + "await github.list_issues(a=[1])\n" * 1_500,
        "if x:\n" + "".join(" " * n + "if x:\n" for n in range(1, 98)) + " " * 98 + "x",
        "\n".join(f"import m{n}" for n in range(4_000)),
        "import github\nawait github.list_issues(a='" + "x" * 190_000 + "', b='" + "y" * 20_000 + "')",
    ],
    ids=range(10),
)
def test_a_hostile_source_gives_a_bounded_analysis(code: str) -> None:
    found = analyse(code)
    assert len(found["refusals"]) <= manifest.MAX_FINDINGS
    assert len(found["literals"]) <= manifest.MAX_LITERAL_CALLS
    assert len(json.dumps(found)) < 400_000


def test_manifest_and_hints_load_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = {*sys.modules}; from switchboard_mcp.programs.checking import manifest; "
        "new = {name.partition('.')[0] for name in sys.modules.keys() - before}; print(*new - sys.stdlib_module_names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["switchboard_mcp"]


def test_a_module_that_may_be_a_misspelled_suite_gets_no_hint_of_its_own() -> None:
    assert hints.import_hint("gitub") == ""
