"""The durable message store: files, leases, receipts, dead letters and group commit.

Start with `store`.
"""
