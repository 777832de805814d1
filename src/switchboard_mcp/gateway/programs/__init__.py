"""Programs of hosts at the gateway: the program suite, the approval of a program, and the path of its calls.

Start with `program_server`. The engine and the checks are in `switchboard_mcp.programs`.
"""
