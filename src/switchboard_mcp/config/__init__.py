"""Configuration: models, loading, discovery of children and variables.

Start with `models` and `load`.
"""
