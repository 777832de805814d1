"""Conversations: threads, copies, recalls, progress, deadlines and contact rules, on top of the store. Start with
`threads`.
"""
