"""Checks programs before they run: stubs of the tools, the manifest, and the verdict. Pure.

Start with `verdict`. `manifest` and `hints` use the standard library alone, since they run in the helper.
"""
