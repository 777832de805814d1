"""What Switchboard costs, beside no proxy at all, the least a relay can cost, and another proxy.

`python -m bench` from the root of the repository. Each scenario is a module; their table is in `__main__`.
"""
