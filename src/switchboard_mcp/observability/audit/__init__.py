"""The audit log: hash-chained records of calls, their files, and verification.

Start with `call_record`, one package up: it names every place that a field of a record passes.
"""
