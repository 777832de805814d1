"""Masks secrets in logs, errors and artifacts. Pure.

Start with `redactor`.
"""
