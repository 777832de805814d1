"""`each_case` runs a test for every case of a table as one test item, and names each case that failed."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

FAILED = (Exception, pytest.fail.Exception)
LONGEST_NAME = 100
USER_FOLDERS = {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}


def each_case(
    names: str | Sequence[str],
    table: Iterable[Any],
    *,
    ids: Iterable[object] | Callable[[Any], object] | None = None,
    **fresh: Callable[..., Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the test with every case, in one item; the arguments are those of `pytest.mark.parametrize`.

    All cases run; the item fails with a list of those that failed, or else is skipped if one was. Each case has
    folders of the user, a `tmp_path`, a `workspace` and a `monkeypatch` of its own, and what the functions in `fresh`
    return or open; their parameters are fixtures, arguments of the case or earlier names of `fresh`. Any other fixture
    is shared by all cases. Use `parametrize` for a parameter that costs a process or takes another path.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = {
        name: dict(zip(parameters, values, strict=True))
        for name, values in _named(table, len(parameters), ids)
    }
    if not cases:
        raise ValueError("a test needs at least one case")

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        wanted = inspect.signature(test).parameters
        needed = _needed(wanted, fresh)
        used = {name: make for name, make in fresh.items() if name in needed}

        def run(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failures: list[str] = []
            skips: list[str] = []
            for number, name in enumerate(cases):
                with _case(name, failures, skips), ExitStack() as stack:
                    test(*args, **_arguments({**fixtures, **cases[name]}, number, wanted, used, stack))
            _report(failures, skips, len(cases))

        async def run_async(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failures: list[str] = []
            skips: list[str] = []
            for number, name in enumerate(cases):
                with _case(name, failures, skips), ExitStack() as stack:
                    await test(*args, **_arguments({**fixtures, **cases[name]}, number, wanted, used, stack))
            _report(failures, skips, len(cases))

        wrapper = functools.wraps(test)(run_async if inspect.iscoroutinefunction(test) else run)
        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [needed[name] for name in needed if name not in parameters and name not in fresh]
        )
        return wrapper

    return decorate


def _named(
    table: Iterable[Any], width: int, ids: Iterable[object] | Callable[[Any], object] | None
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Return every case with a unique name: its id, or else its values."""
    used: set[str] = set()
    listed = None if ids is None or callable(ids) else list(ids)
    for number, case in enumerate(table):
        name, values = None, [case] if width == 1 else case
        if isinstance(case, type(pytest.param())):
            if case.marks:
                raise ValueError("a case with a mark is an item: use `parametrize`")
            name, values = case.id, case.values
        if name is None:
            texts = map(ids, values) if callable(ids) else map(repr, values)
            name = str(listed[number]) if listed else ", ".join(map(str, texts))
        name = str(name)[:LONGEST_NAME]
        if name in used:
            name = f"{name} ({number})"
        used.add(name)
        yield name, values


def _needed(
    wanted: Mapping[str, inspect.Parameter], fresh: dict[str, Callable[..., Any]]
) -> dict[str, inspect.Parameter]:
    """Return the parameters of the test and those of the functions in `fresh` that it needs."""
    needed = dict(wanted)
    for name in reversed(fresh):
        if name in needed:
            needed |= inspect.signature(fresh[name]).parameters
    return needed


def _arguments(
    own: dict[str, Any],
    number: int,
    wanted: Iterable[str],
    fresh: dict[str, Callable[..., Any]],
    stack: ExitStack,
) -> dict[str, Any]:
    """Return the arguments of the test, with those replaced that a case must not share with the one before."""
    for name in {"tmp_path", "workspace"} & own.keys():
        folder: Path = own[name] / f"case-{number}"
        folder.mkdir()
        own[name] = folder
    monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
    for variable in USER_FOLDERS & os.environ.keys():
        monkeypatch.setenv(variable, f"{os.environ[variable]}/case-{number}")
    if "monkeypatch" in own:
        own["monkeypatch"] = monkeypatch
    if "capsys" in own:
        own["capsys"].readouterr()
    for name, make in fresh.items():
        made = make(**{needed: own[needed] for needed in inspect.signature(make).parameters})
        opens = isinstance(made, AbstractContextManager) and not isinstance(made, Path)  # a path is one, too
        own[name] = stack.enter_context(made) if opens else made
    return {name: own[name] for name in wanted if name in own}


@contextmanager
def _case(name: str, failures: list[str], skips: list[str]) -> Iterator[None]:
    """Add what fails here to `failures`, and what is skipped to `skips`."""
    __tracebackhide__ = True
    try:
        yield
    except pytest.skip.Exception as skip:
        skips.append(f"case {name}: {skip.msg}")
    except FAILED as error:
        if isinstance(error, pytest.fail.Exception) and not error.pytrace:
            failures.append(f"case {name}:\n{error.msg}")
        else:
            failures.append(
                f"case {name}:\n{pytest.ExceptionInfo.from_exception(error).getrepr(style='short')}"
            )


def _report(failures: list[str], skips: list[str], count: int) -> None:
    __tracebackhide__ = True
    if failures:
        pytest.fail(f"{len(failures)} of {count} cases failed\n\n" + "\n\n".join(failures), pytrace=False)
    if skips:
        pytest.skip(f"{len(skips)} of {count} cases: {', '.join(skips)}")
