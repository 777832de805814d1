"""`each_case` runs a test for every case of a table as one test item, and names each case that failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

FAILED = (Exception, pytest.fail.Exception, pytest.skip.Exception)
LONGEST_NAME = 100


def each_case(
    names: str | Sequence[str],
    table: Iterable[Any],
    *,
    ids: Iterable[object] | Callable[[Any], object] | None = None,
    **opened: Callable[[], AbstractContextManager[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the test with every case, in one item; the arguments are those of `pytest.mark.parametrize`.

    All cases run, and the item fails with a list of those that failed. Each case has a `tmp_path`, a `workspace` and a
    `monkeypatch` of its own, and what the functions in `fresh` return or open; their parameters are fixtures, arguments
    of the case or earlier names of `fresh`. Any other fixture is shared by all cases. Use `parametrize` for a
    parameter that costs a process or takes another path.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = {
        name: dict(zip(parameters, values, strict=True))
        for name, values in _named(table, len(parameters), ids)
    }
    if not cases:
        raise ValueError("a test needs at least one case")

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failures: list[str] = []
            for number, name in enumerate(cases):
                with _case(name, failures), ExitStack() as stack:
                    own = _fixtures_of_case(fixtures, number, opened, stack)
                    test(*args, **own, **cases[name])
            _report(failures, len(cases))

        async def run_async(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failures: list[str] = []
            for number, name in enumerate(cases):
                with _case(name, failures), ExitStack() as stack:
                    own = _fixtures_of_case(fixtures, number, opened, stack)
                    await test(*args, **own, **cases[name])
            _report(failures, len(cases))

        signature = inspect.signature(test)
        given = {*parameters, *opened}
        wrapper = functools.wraps(test)(run_async if inspect.iscoroutinefunction(test) else run)
        wrapper.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                parameter for parameter in signature.parameters.values() if parameter.name not in given
            ]
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
            name = listed[number] if listed else ", ".join(map(str, texts))
        name = str(name)[:LONGEST_NAME]
        if name in used:
            name = f"{name} ({number})"
        used.add(name)
        yield name, values


def _fixtures_of_case(
    fixtures: dict[str, Any],
    number: int,
    opened: dict[str, Callable[[], AbstractContextManager[Any]]],
    stack: ExitStack,
) -> dict[str, Any]:
    """Return the fixtures with those replaced that a case must not share with the one before."""
    own = dict(fixtures)
    for name in {"tmp_path", "workspace"} & fixtures.keys():
        folder: Path = fixtures[name] / f"case-{number}"
        folder.mkdir()
        own[name] = folder
    if "monkeypatch" in fixtures:
        own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
    if "capsys" in fixtures:
        fixtures["capsys"].readouterr()
    own.update((name, stack.enter_context(open_it())) for name, open_it in opened.items())
    return own


@contextmanager
def _case(name: str, failures: list[str]) -> Iterator[None]:
    """Add what fails here to `failures`."""
    __tracebackhide__ = True
    try:
        yield
    except FAILED as error:
        if isinstance(error, pytest.fail.Exception) and not error.pytrace:
            failures.append(f"case {name}:\n{error.msg}")
        else:
            failures.append(
                f"case {name}:\n{pytest.ExceptionInfo.from_exception(error).getrepr(style='short')}"
            )


def _report(failures: list[str], count: int) -> None:
    __tracebackhide__ = True
    if failures:
        pytest.fail(f"{len(failures)} of {count} cases failed\n\n" + "\n\n".join(failures), pytrace=False)
