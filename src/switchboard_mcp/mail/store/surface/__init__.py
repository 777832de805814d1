"""The folders of mail, for agents without MCP and for people: what is dropped there is imported, what waits is shown.

The database alone says what is where. A file changes it in two cases: an unknown name in `inbox/<agent>/` is a new
message, and the name of a waiting message in `archive/<agent>/` settles that one. Start with `surface.FileSurface`.
"""
