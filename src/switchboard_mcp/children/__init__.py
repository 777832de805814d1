"""The child MCP servers: lifecycle, startup, restarts, health, inventory and lock.

Start with `child`, the table in `lifecycle` and the decision in `restart_rules`.
"""
