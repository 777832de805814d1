"""A small durable database for one workspace: SQLite for one machine, PostgreSQL for several.

Features bring their tables (`table_versions.Part`) and run functions in transactions; start with `database.Database`.
One process writes at a time, and concurrent jobs of a process share a commit. The package knows no feature's tables.
"""
