"""An MCP server inside this process, used for the built-in suites.

Start with `server_app`, which describes a server; `mcp_server` speaks the protocol.
"""
