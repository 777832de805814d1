"""FastMCP's provider of skills, as its documentation sets it up: `python fastmcp_skills.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension

server = FastMCP("skills")
provider = SkillsDirectoryProvider(roots=[Path(sys.argv[1])], experimental_skills=True)
server.add_provider(provider)
server.add_extension(SkillsExtension(providers=[provider]))


def echo(text: str) -> str:
    """Return the text."""
    return text


# Called, not used as a decorator: without FastMCP (an optional package) a decorator would be untyped.
server.tool(echo)
server.run(transport="stdio", show_banner=False)
