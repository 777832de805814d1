from __future__ import annotations

import pytest

from switchboard_mcp.setup.hosts import Syntax
from switchboard_mcp.setup.variable_syntax import UntranslatableError, referenced_variables, translate
from tests.cases import each_case

HERE = {"workspace": "/work/space", "platform": "linux"}


@each_case(
    ("syntax", "text", "translated"),
    [
        ("braces", "${A} ${B:-x y} $C {env:D}", "${A} ${B:-x y} $C {env:D}"),
        ("prefixed", "Bearer ${env:TOKEN}", "Bearer ${TOKEN}"),
        (
            "prefixed",
            "${workspaceFolder}/x ${userHome} ${workspaceFolderBasename}",
            "/work/space/x ${HOME} space",
        ),
        ("prefixed", "${PLAIN} $HOME", "${PLAIN} $HOME"),
        ("dollar", "$A/${B}:${C:-d} 5$ $1", "${A}/${B}:${C:-d} 5$ $1"),
        ("opencode", "Bearer {env:TOKEN} {x}", "Bearer ${TOKEN} {x}"),
        ("continue", "${{ secrets.KEY }} ${{secrets.B}}", "${KEY} ${B}"),
        ("none", "$HOME %x% $", "$HOME %x% $"),
    ],
)
def test_each_way_of_writing_a_variable_has_one_form_here(syntax: Syntax, text: str, translated: str) -> None:
    assert translate(text, syntax, HERE) == translated


@each_case(
    ("syntax", "text"),
    [
        ("prefixed", "${input:token}"),
        ("prefixed", "${command:x.y}"),
        ("prefixed", "${file:/run/secret}"),
        ("opencode", "{file:~/.token}"),
        ("opencode", "${PLAIN_TEXT}"),
        ("continue", "${{ inputs.KEY }}"),
        ("none", "echo ${PLAIN_TEXT}"),
    ],
)
def test_a_message_without_an_equivalent_is_refused(syntax: Syntax, text: str) -> None:
    with pytest.raises(UntranslatableError):
        translate(text, syntax, HERE)


def test_windows_has_a_form_of_its_own() -> None:
    assert translate("%A% $B", "dollar", {**HERE, "platform": "win32"}) == "${A} ${B}"
    assert translate("${userHome}", "prefixed", {**HERE, "platform": "win32"}) == "${USERPROFILE}"


def test_the_variables_of_a_text() -> None:
    assert referenced_variables("${A}-${B:-x}-$C") == ["A", "B"]
