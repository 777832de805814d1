"""Conversations: threads, copies, progress and deadlines, on top of the store. Start with
`threads`.
"""
