"""A governed workspace in a folder: one program, one script, one approved child, and the judge of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import structs

from switchboard_mcp.config.files.approvals import Approval, Approvals, FilePin, path_variables
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import SandboxSettings
from switchboard_mcp.config.sections import GovernanceSettings
from switchboard_mcp.policy.launch.file_inspector import hash_path
from switchboard_mcp.policy.launch.rules import LaunchPolicy

ENVIRON = {"HOME": "/home/ada", "PATH": "/usr/bin", "SECRET": "not for children"}


class Place:
    """The workspace, what is in it, and what is approved."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = Path(tmp_path).resolve() / "workspace"
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        self.node = self.bin / "node"
        self.node.write_bytes(b"\x7fELF a program")
        self.node.chmod(0o755)
        self.script = self.folder / "index.js"
        self.script.write_text("serve()")
        self.script.chmod(0o644)
        self.file = str(self.folder / "switchboard.approvals.json")
        self.approval = Approval(
            command="node",
            args=["index.js", "--root", "*"],
            launch=[str(self.node), str(self.script)],
            replaces=1,
            files=[self.pin(self.node), self.pin(self.script)],
            env=["TOKEN"],
            env_values={"NODE_OPTIONS": "--no-warnings"},
            sandbox=SandboxSettings(preset="workspace"),
        )

    def pin(self, path: Path) -> FilePin:
        return FilePin(path=str(path), sha256=hash_path(str(path)).sha256)

    def spec(self, **changes: Any) -> ChildSpec:
        """The child as it was approved, but for the changes."""
        spec = ChildSpec(
            name="good",
            source=str(self.folder / "switchboard.config.json"),
            key="mcpServers.good",
            command="node",
            args=["index.js", "--root", "data"],
            env={"TOKEN": "x", "NODE_OPTIONS": "--no-warnings"},
            cwd=str(self.folder),
        )
        return structs.replace(spec, **changes)

    def guard(self, governance: GovernanceSettings | None = None, **changes: Any) -> LaunchPolicy:
        """The judge, with the approval but for the changes."""
        approval = structs.replace(self.approval, **changes)
        return LaunchPolicy(
            Approvals(children={"good": approval}),
            self.file,
            governance or GovernanceSettings(mode="governed"),
            str(self.folder),
            path_variables(str(self.folder), ENVIRON),
            ENVIRON,
        )
