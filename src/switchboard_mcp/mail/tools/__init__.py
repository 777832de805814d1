"""The MCP tools of the mail server, one module per subject. `table` lists them all."""
