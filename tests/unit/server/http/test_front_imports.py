"""The dashboard's web framework is loaded with the dashboard, never for serving MCP."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import switchboard_mcp.http_app
print([name for name in ("starlette", "switchboard_mcp.server.dashboard.dashboard") if name in sys.modules])
"""


def test_serving_over_http_loads_no_web_framework() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
