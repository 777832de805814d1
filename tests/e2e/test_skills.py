"""Skills of FastMCP's provider behind a suite: listed, read with their digests, locked to the byte."""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.host import switchboard
from tests.e2e.shell import run
from tests.e2e.workspaces import REPO, add_child

SERVER = REPO / "tests" / "children" / "fastmcp_skills.py"
SKILL = "---\nname: refunds\ndescription: How to refund.\n---\nRead a.md.\n"


@pytest.mark.skipif(find_spec("fastmcp") is None, reason="FastMCP is not installed (scripts/setup bench)")
def test_skills_of_fastmcp_are_read_with_their_digests_and_one_byte_of_drift_is_noticed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "skills" / "refunds"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "a.md").write_text("the file\n")
    add_child(tmp_path, "kid", [sys.executable, str(SERVER), str(folder.parent)])
    locked = run(tmp_path, "lock")
    assert locked.returncode == 0, locked.stderr
    with switchboard(tmp_path) as host:
        host.initialize()
        assert "kid/refunds/SKILL.md" in json.dumps(
            host.introspect("kid_suite")
        )  # for hosts that know no skills
        (listed,) = host.result("skills/list")["skills"]
        assert listed["frontmatter"] == {"name": "refunds", "description": "How to refund."}
        assert host.result("skills/get", {"uri": listed["uri"]})["skill"] == listed
        assert {file["uri"].rpartition("/")[2] for file in listed["resources"]} == {"SKILL.md", "a.md"}
        for file in listed["resources"]:
            assert file["uri"].startswith("skill://kid/refunds/")
            (content,) = host.result("resources/read", {"uri": file["uri"]})["contents"]
            body = content["text"].encode()
            assert (file["size"], file["digest"]) == (len(body), f"sha256:{hashlib.sha256(body).hexdigest()}")
    (folder / "a.md").write_text("the fire\n")
    checked = run(tmp_path, "lock", "--check")
    assert checked.returncode == 1
    assert "refunds" in checked.stdout + checked.stderr
