"""`init`, `add`, `import` and `revert`: finds hosts' config files and edits them.

Start with `plan` and the table in `hosts`.
"""
