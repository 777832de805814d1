"""Natural-language requests: a model plans calls of a child, within what is allowed.

Start with `engine`.
"""
