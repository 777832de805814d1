"""What of the config Windows cannot give yet, said before anything is started. Loaded there only."""

from __future__ import annotations

from switchboard_mcp.config.models import Workspace
from switchboard_mcp.errors import refused


def refuse_what_is_missing(workspace: Workspace, *, http: bool = False) -> None:
    """Mail, record, approvals and tokens rest on locks and owners of files as POSIX has them."""
    config = workspace.config
    wanted = {
        "serve --http": http,
        f"{workspace.source}: mail.enabled": config.mail.enabled,
        f"{workspace.source}: audit.enabled": config.audit.enabled is True,
        f"{workspace.source}: governance.mode 'governed'": config.governance.mode == "governed",
    }
    for what, is_wanted in wanted.items():
        if is_wanted:
            hint = "Do without it, or run Switchboard in WSL."
            raise refused("config_invalid", f"{what}: not available on Windows yet.", hint=hint)
