"""Mail between agents: messages as files in `.switchboard/`, shared by every process of a workspace.

Start with `server` for the MCP tools and `store.store` for the messages.
"""
