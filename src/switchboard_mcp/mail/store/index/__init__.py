"""Indexes beside the message files, for speed alone: they may be deleted at any time. Start with `inbox_index`."""
