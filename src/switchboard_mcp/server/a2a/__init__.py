"""A2A: agents of other systems send tasks to the agents of this workspace over HTTP, as mail. Start with
`a2a_endpoint`.
"""
