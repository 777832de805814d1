"""Decides which children may run and which subtools exist.

Start with `governance`; the launch rules of governed mode are in `launch.rules`.
"""
