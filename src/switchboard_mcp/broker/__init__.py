"""One process per workspace that serves all its stdio sessions, and the way from a host's process to it.

`joining` runs first, in the process that the host has started; `shim` hands its pipes over and waits.
"""
