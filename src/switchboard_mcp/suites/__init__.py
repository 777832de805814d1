"""Presents tools to a model: introspection, schemas, signatures, search and token counts. Pure: no I/O.

Start with `introspect`.
"""
