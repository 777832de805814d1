"""The dashboard: its page, its JSON API and its event stream.

Start with `dashboard`.
"""
