"""Finds the config files of hosts and edits them, for `init`, `add`, `import` and `revert`.

Start with `plan` and the table in `hosts`.
"""
