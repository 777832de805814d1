"""The child MCP servers: lifecycle, startup, health, inventory, lock and supervision.

Start with `child` and the table in `lifecycle`.
"""
