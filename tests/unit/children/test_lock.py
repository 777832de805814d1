"""The lock file: the same bytes for the same child, and a plain word for whoever has broken it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.children.catalog import ServerIdentity, ServerSnapshot, read_tools
from switchboard_mcp.children.locking import lock_file
from switchboard_mcp.config.files.lock_models import LockedChild, LockFile
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import Preset, SandboxSettings
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case
from tests.conftest import published_schema

Json = dict[str, Any]
SPEC = ChildSpec(
    name="kid", source="/w/a.json", command="/w/bin/kid", args=["--root", "/w/data"], env={"KEY": "s3cret"}
)
READ: Json = {
    "name": "read",
    "description": "Reads.",
    "inputSchema": {"type": "object", "properties": {"b": {}, "a": {"default": "2026-11-15"}}},
    "icons": ["x"],
}


def snapshot(*tools: Json, **more: Any) -> ServerSnapshot:
    return ServerSnapshot(
        server=ServerIdentity("s", "1"),
        protocol="2025-11-25",
        capabilities={"tools": Raw(b"{}"), "logging": Raw(b"{}")},
        tools=[Raw(json.dumps(tool).encode()) for tool in tools or (READ,)],
        **more,
    )


def entry(*tools: Json, **more: Any) -> LockedChild:
    return lock_file.lock_child(SPEC, "/w", snapshot(*tools, **more))


def written(**children: LockedChild) -> LockFile:
    return LockFile(schema_version=1, children=children)


# --- the file -----------------------------------------------------------------------------------------


def test_written_entries_are_read_back(tmp_path: Path) -> None:
    path = lock_file.lock_path(str(tmp_path))
    lock_file.write_lock(path, written(kid=entry()))
    again = lock_file.read_lock(path)
    assert again is not None
    assert lock_file.render(again) == Path(path).read_bytes()
    assert lock_file.find_tampering(path, "kid", again.children["kid"]) is None
    assert list(tmp_path.iterdir()) == [Path(path)]


def test_there_may_be_no_lock(tmp_path: Path) -> None:
    assert lock_file.read_lock(str(tmp_path / "switchboard.lock.json")) is None


def test_the_file_is_sorted_and_valid_by_its_schema() -> None:
    data = lock_file.render(written(b=entry(), a=entry(READ, {**READ, "name": "other"})))
    document = json.loads(data)
    assert data.decode() == json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    jsonschema.validate(document, published_schema("lock"))


def test_an_editor_may_be_told_where_the_schema_is(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text('{"$schema": "./x.json", "schemaVersion": 1}')
    read = lock_file.read_lock(str(path))
    assert read is not None
    assert b'"$schema": "./x.json"' in lock_file.render(read)


@each_case(
    ("text", "message"),
    [
        ("", "is empty"),
        ("{", "it ends too early, at line 1 column 2"),
        ("[]", "Expected `object`, got `array`."),
        ('{"children": {}}', "Object missing required field `schemaVersion`."),
        ('{"schemaVersion": 2, "children": {}}', "schemaVersion: Invalid enum value 2."),
        ('{"schemaVersion": 1, "childs": {}}', "Object contains unknown field `childs`."),
        ('{"schemaVersion": 1, "children": []}', "children: Expected `object`, got `array`."),
        (
            '{"schemaVersion": 1, "children": {"k.d": {}}}',
            "children['k.d']: Object missing required field `launch`.",
        ),
        ('<<<<<<< ours\n{"schemaVersion": 1}\n', "has unresolved merge conflicts"),
        ("\xff", "is not UTF-8"),
    ],
)
def test_a_broken_file_is_refused_by_its_name_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "switchboard.lock.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(SwitchboardError) as caught:
        lock_file.read_lock(str(path))
    assert caught.value.failure.code == "lock_invalid"
    assert caught.value.failure.message.startswith(f"{path}: ")
    assert message in caught.value.failure.message


def test_every_mistake_is_reported_with_its_key(tmp_path: Path) -> None:
    document = json.loads(lock_file.render(written(kid=entry(), kit=entry())))
    document["children"]["kid"]["tools"]["read"]["hash"] = "md5:1"
    document["children"]["kit"]["server"]["version"] = 1
    path = tmp_path / "switchboard.lock.json"
    path.write_text(json.dumps(document))
    with pytest.raises(SwitchboardError) as caught:
        lock_file.read_lock(str(path))
    lines = caught.value.failure.message.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "children.kid.tools.read.hash",
        "children.kit.server.version",
    ]


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SwitchboardError) as caught:
        lock_file.write_lock(str(tmp_path / "missing" / "lock"), written())
    assert "cannot be written" in caught.value.failure.message


# --- entries ------------------------------------------------------------------------------------------


@each_case(
    ("change", "key"),
    [
        (lambda child: msgspec.structs.replace(child, instructions="Other."), "children.kid.instructions"),
        (
            lambda child: msgspec.structs.replace(
                child, tools={"read": msgspec.structs.replace(child.tools["read"], description="Other.")}
            ),
            "children.kid.tools.read",
        ),
        (
            lambda child: msgspec.structs.replace(child, tools={"renamed": child.tools["read"]}),
            "children.kid.tools.renamed",
        ),
        (
            lambda child: msgspec.structs.replace(child, results={"read": {"type": "string"}}),
            "children.kid.results",
        ),
        (
            lambda child: msgspec.structs.replace(child, results_hash="sha256:" + "0" * 64),
            "children.kid.results",
        ),
    ],
)
def test_files_changed_by_hand_are_named(change: Any, key: str) -> None:
    found = lock_file.find_tampering("/w/lock", "kid", change(entry()))
    assert found is not None
    assert (found.code, f"/w/lock: {key}: " in found.message) == ("lock_invalid", True)


def test_an_entry_reads_like_what_the_child_told() -> None:
    known = lock_file.snapshot_of(entry(instructions="Careful.\n"))
    (tool,) = read_tools(known.tools)
    assert (tool.name, tool.description, known.instructions) == ("read", "Reads.", "Careful.")
    assert (known.server.name, known.protocol, list(known.capabilities)) == (
        "s",
        "2025-11-25",
        ["logging", "tools"],
    )
    assert b"\n" not in bytes(known.tools[0])


def test_required_parameters_come_first() -> None:
    schema = {"type": "object", "properties": {"head": {}, "path": {}, "all": {}}, "required": ["path"]}
    (tool,) = read_tools(lock_file.snapshot_of(entry({**READ, "inputSchema": schema})).tools)
    assert isinstance(tool.input_schema, Raw)
    assert list(json.loads(bytes(tool.input_schema))["properties"]) == ["path", "all", "head"]


@each_case(
    ("field", "value", "same"),
    [
        ("name", "kit", True),
        ("cwd", "/elsewhere", True),
        ("env", {"KEY": "other"}, True),
        ("env", {"OTHER": "s3cret"}, False),
        ("command", "/w/bin/kit", False),
        ("args", ["--root"], False),
        ("headers", {"X": "y"}, False),
        ("url", "https://x", False),
    ],
)
def test_a_launch_is_what_is_run_without_its_secrets(field: str, value: object, same: bool) -> None:
    other = msgspec.structs.replace(SPEC, **{field: value})
    assert (lock_file.launch_hash(other, "/w") == lock_file.launch_hash(SPEC, "/w")) is same


def test_a_launch_is_the_same_in_every_checkout() -> None:
    elsewhere = msgspec.structs.replace(
        SPEC, command="/home/ada/w/bin/kid", args=["--root", "/home/ada/w/data"]
    )
    assert lock_file.launch_hash(elsewhere, "/home/ada/w") == lock_file.launch_hash(SPEC, "/w")


@each_case(
    ("one", "other", "same"),
    [
        ("https://u:p@h/mcp?key=1", "https://h/mcp?key=2", True),
        ("https://h/mcp#a", "https://h/mcp", True),
        ("https://h/mcp?a=1&b=2", "https://h/mcp?b=3&a=4", True),
        ("https://h/mcp", "https://g/mcp", False),
        ("https://h/mcp", "https://h/sse", False),
        ("https://h/mcp", "http://h/mcp", False),
        ("https://h/mcp?a=1", "https://h/mcp?b=1", False),
    ],
)
def test_an_address_counts_without_its_secrets(one: str, other: str, same: bool) -> None:
    def hashed(url: str) -> str:
        return lock_file.launch_hash(ChildSpec(name="r", source="f", kind="http", url=url), "/w")

    assert (hashed(one) == hashed(other)) is same


def test_equal_values_stay_as_they_were_written() -> None:
    before = entry(READ, {**READ, "name": "b"}, instructions="Be\ngood.")
    after = entry(
        {**READ, "description": "Reads. "}, {**READ, "name": "b", "title": "B"}, instructions="Be good."
    )
    both = lock_file.merge(before, after)
    assert both.tools["read"] is before.tools["read"]
    assert both.tools["b"].title == "B"
    assert both.instructions == "Be\ngood."


@each_case(
    ("before", "after", "shown", "remarks"),
    [
        (UNSET, UNSET, [], []),
        ("workspace", "workspace", [], []),
        ("workspace", "strict", ["sandbox changed: workspace → strict"], []),
        ("workspace", "off", ["sandbox changed: workspace → off"], []),
        ("workspace", UNSET, ["sandbox changed: workspace → off"], []),
        (UNSET, "workspace", [], ["its sandbox, workspace, is not in the lock"]),
    ],
)
def test_a_changed_sandbox_is_drift_and_an_unknown_one_a_remark(
    before: Preset | UnsetType, after: Preset | UnsetType, shown: list[str], remarks: list[str]
) -> None:
    old, new = (
        lock_file.lock_child(
            SPEC, "/w", snapshot(), preset if preset is UNSET else SandboxSettings(preset=preset)
        )
        for preset in (before, after)
    )
    assert [change.describe() for change in lock_file.compare_children(old, new)] == shown
    assert lock_file.metadata_changes(old, new) == remarks
    text = lock_file.render(written(x=old))
    assert (b'"sandbox"' in text) == (before is not UNSET)
    assert msgspec.json.decode(text, type=LockFile).children["x"].sandbox == old.sandbox


def test_a_new_version_alone_is_a_remark() -> None:
    before = entry()
    after = lock_file.lock_child(msgspec.structs.replace(SPEC, args=[]), "/w", snapshot())
    after.server.version = "2"
    after.protocol = "2026-07-28"
    assert lock_file.compare_children(before, after) == []
    assert lock_file.metadata_changes(before, after) == [
        "it is started differently than when it was locked",
        "server s 1 → s 2",
        "protocol 2025-11-25 → 2026-07-28",
    ]
