"""Natural-language requests: a model plans calls of one child, within its policies.

Start with `engine`.
"""
