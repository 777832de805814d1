"""The MCP server that hosts talk to: suites, relayed methods, sessions and reload.

Start with `gateway` and the table in `methods`.
"""
