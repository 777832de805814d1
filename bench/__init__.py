"""Measures Switchboard beside a direct connection, a minimal relay and another proxy.

`python -m bench` from the root of the repository. Each scenario is a module; their table is in `__main__`.
"""
