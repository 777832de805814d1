"""Known needs of published servers, as proposals: `sandbox learn` shows them, nothing applies them by itself.

They are starting points, not promises: hosts are those of the services that the servers are for. `data` are folders in
the user's home with the user's own data, which a private home would hide.
"""

from __future__ import annotations

import re

from msgspec import Struct

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sandbox import SandboxFiles, SandboxSettings


class KnownServer(Struct, frozen=True):
    """The needs of a published server."""

    hosts: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    preset: str = "workspace"
    note: str = ""


GITHUB = ("api.github.com", "raw.githubusercontent.com", "*.githubusercontent.com", "github.com")
GOOGLE = ("*.googleapis.com", "accounts.google.com", "oauth2.googleapis.com")
# By package name, without version. Empty needs mean: works in `workspace` as it is.
KNOWN: dict[str, KnownServer] = {
    "@modelcontextprotocol/server-everything": KnownServer(),
    "@modelcontextprotocol/server-filesystem": KnownServer(note="add the folders it serves to files.write"),
    "@modelcontextprotocol/server-memory": KnownServer(note="its memory file is in the package; set MEMORY_FILE_PATH"),
    "@modelcontextprotocol/server-sequential-thinking": KnownServer(),
    "@modelcontextprotocol/server-github": KnownServer(GITHUB),
    "@modelcontextprotocol/server-gitlab": KnownServer(("gitlab.com",)),
    "@modelcontextprotocol/server-slack": KnownServer(("slack.com", "*.slack.com")),
    "@modelcontextprotocol/server-brave-search": KnownServer(("api.search.brave.com",)),
    "@modelcontextprotocol/server-google-maps": KnownServer(("maps.googleapis.com",)),
    "@modelcontextprotocol/server-postgres": KnownServer(note="add the database: `db.example.com:5432`"),
    "@modelcontextprotocol/server-puppeteer": KnownServer(preset="browser"),
    "@playwright/mcp": KnownServer(preset="browser"),
    "chrome-devtools-mcp": KnownServer(preset="browser"),
    "@upstash/context7-mcp": KnownServer(("context7.com", "*.context7.com")),
    "@notionhq/notion-mcp-server": KnownServer(("api.notion.com",)),
    "@azure/mcp": KnownServer(
        ("login.microsoftonline.com", "management.azure.com", "*.azure.com"),
        note="set DOTNET_BUNDLE_EXTRACT_BASE_DIR to a folder it may write",
    ),
    "@sentry/mcp-server": KnownServer(("sentry.io", "*.sentry.io")),
    "@stripe/mcp": KnownServer(("api.stripe.com",)),
    "@supabase/mcp-server-supabase": KnownServer(("api.supabase.com",)),
    "@softeria/ms-365-mcp-server": KnownServer(
        ("graph.microsoft.com", "login.microsoftonline.com"), ("${home}/.ms-365-mcp-server",)
    ),
    "mongodb-mcp-server": KnownServer(("cloud.mongodb.com",), ("${home}/.mongodb",), note="add the database's host"),
    "firecrawl-mcp": KnownServer(("api.firecrawl.dev",)),
    "exa-mcp-server": KnownServer(("api.exa.ai",)),
    "tavily-mcp": KnownServer(("api.tavily.com",)),
    "mcp-server-time": KnownServer(),
    "mcp-server-git": KnownServer(note="to commit, set files.protect to a list without ${workspace}/.git"),
    "mcp-server-sqlite": KnownServer(),
    "mcp-server-fetch": KnownServer(("*",), note="it reads any web page; list hosts to restrict it"),
    "basic-memory": KnownServer(data=("${home}/basic-memory", "${home}/.basic-memory")),
    "arxiv-mcp-server": KnownServer(("export.arxiv.org", "arxiv.org"), ("${home}/.arxiv-mcp-server",)),
    "duckduckgo-mcp-server": KnownServer(("*",), note="it reads any web page; list hosts to restrict it"),
    "mcp-server-motherduck": KnownServer(("api.motherduck.com", "*.motherduck.com")),
    "awslabs.aws-documentation-mcp-server": KnownServer(("docs.aws.amazon.com", "*.amazonaws.com")),
}  # fmt: skip


def package_of(spec: ChildSpec) -> str:
    """Return the package that a child's command names, without its version; or an empty string."""
    for word in (spec.command, *spec.args):
        name = re.sub(r"(?<=.)@[^/@]*$|==.*$|\[.*$", "", word)
        if name in KNOWN:
            return name
        # An installed package: .../node_modules/NAME/... or .../bin/NAME.
        found = re.search(r"/node_modules/((?:@[^/]+/)?[^/]+)/|/bin/([^/]+)$", word)
        if found is not None and (found[1] or found[2]) in KNOWN:
            return str(found[1] or found[2])
    return ""


def propose(spec: ChildSpec) -> tuple[SandboxSettings, str] | None:
    """Return the sandbox that is known for a child and a note on it, or None if its server is unknown."""
    known = KNOWN.get(package_of(spec))
    if known is None:
        return None
    settings = SandboxSettings(
        preset="browser" if known.preset == "browser" else "workspace",
        network=list(known.hosts) or None,
        files=SandboxFiles(write=list(known.data)),
    )
    return settings, known.note
