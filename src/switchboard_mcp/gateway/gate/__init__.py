"""Enforces the rules of the gate on the way to a child, and asks the user where a rule says so.

`policy.gate` decides. Loaded only if the config has rules.
"""
