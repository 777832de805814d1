"""Every setting that a page names can be set, and every example of a config is one that Switchboard takes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.documents import decode_json
from switchboard_mcp.config.load import REMOVED_KEYS, RENAMED_KEYS, read_config
from switchboard_mcp.suites.suite_arguments import SuiteCall
from tests.conftest import published_schema
from tests.docs.pages import PAGES, REPO, blocks, name_of, prose

SCHEMA = published_schema("config")
TOP = frozenset(SCHEMA["properties"])
# Names that stand for any: `suites.<child>.pin`, `profiles.NAME`, and examples such as `suites.github.pin`.
DOTTED = re.compile(r"`([a-z][A-Za-z]*(?:\.[A-Za-z<>_*-]+)+)`")
# Files, and the keys of other things, that look the same.
FILES = re.compile(r"\.(json|toml|md|py|pyi|yaml|yml|js|ts|env|svg|txt|lock|key|sh)$")
# Names of events in the log.
EVENTS = frozenset(
    {
        "ask.done",
        "mail.look_failed",
        "mail.maintenance_failed",
        "mail.refused",
        "mail.starving",
        "mail.unread_overdue",
    }
)
# A page of dotted module names.
MODULES = "docs/reference/modules.md"


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    for link in [node, *node.get("allOf", []), *node.get("anyOf", [])]:
        if "$ref" in link:
            found: dict[str, Any] = SCHEMA["$defs"][link["$ref"].rpartition("/")[2]]
            return found
    return node


def exists(path: str) -> bool:
    node: dict[str, Any] = SCHEMA
    for part in path.split("."):
        node = resolve(node)
        more = node.get("additionalProperties")
        if part in node.get("properties", {}):
            node = node["properties"][part]
        elif isinstance(more, dict):
            node = more
        else:  # free form, such as the options of a middleware
            return node.get("type") == "object" and "properties" not in node
    return True


def named(page: Path) -> set[str]:
    words = DOTTED.findall(prose(page.read_text(encoding="utf-8")))
    return {
        word
        for word in words
        if word.partition(".")[0] in TOP and not FILES.search(word) and word not in EVENTS
    }


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) != MODULES], ids=name_of)
def test_every_setting_that_a_page_names_can_be_set(page: Path) -> None:
    former = RENAMED_KEYS if page.name == "CHANGELOG.md" else {}
    gone = REMOVED_KEYS if page.name == "CHANGELOG.md" else {}
    settings = sorted(named(page) - gone.keys())
    assert [path for path in settings if not exists(former.get(path, path))] == []


def configs(page: Path) -> Iterator[dict[str, Any]]:
    """The examples on a page that are configs of Switchboard, or of a host that has the same form."""
    for kind, block in blocks(page.read_text(encoding="utf-8")):
        several = len(re.findall(r"^\{", block, re.MULTILINE)) > 1
        if kind in ("json", "jsonc") and "…" not in block and not several:
            read = decode_json(block.encode())
            assert isinstance(read, dict | list), f"{name_of(page)}: {read}: {block}"
            found = read if isinstance(read, dict) else {}
        elif kind == "toml" and "mcp_servers" not in block:
            found = tomllib.loads(block)
        else:
            continue
        if found and set(found) <= TOP | {"$schema"}:
            yield found


@pytest.mark.parametrize("page", [page for page in PAGES if any(True for _ in configs(page))], ids=name_of)
def test_every_config_that_a_page_shows_is_taken(page: Path, workspace: Path) -> None:
    file = workspace / "switchboard.config.json"
    for config in configs(page):
        file.write_text(json.dumps(config))
        read_config(str(file))


def test_the_pages_name_enough_for_these_tests_to_mean_something() -> None:
    assert sum(len(named(page)) for page in PAGES) > 40
    assert sum(1 for page in PAGES for _ in configs(page)) > 8


def test_the_concepts_show_every_argument_of_a_suite() -> None:
    page = (REPO / "docs" / "concepts.md").read_text(encoding="utf-8")
    section = page.partition("## Suite arguments and results")[2].partition("\n## ")[0]
    assert set(re.findall(r'"(\w+)":', section)) >= set(SuiteCall.__struct_fields__) - {
        "op",
        "arguments",
    }  # accepted spellings
