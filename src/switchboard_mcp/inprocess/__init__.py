"""An MCP server that runs inside this process, used for the built-in suites."""
