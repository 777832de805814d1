"""Launch rules of governed mode: from a child's config entry to an approved launch, or the reason it is refused.

Start with the table in `rules`.
"""
