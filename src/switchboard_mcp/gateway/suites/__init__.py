"""Suites as a host sees them: one tool per child, its introspect and call, the tool list, views and search.

Start with `suite_tools` and `child_suite`.
"""
