"""The MCP tools of the mail server.

To add a tool, write its arguments, its function and its row in `TOOLS` of the module it belongs to: `agents`,
`messaging` or `workflows`. `table` joins the rows.
"""
