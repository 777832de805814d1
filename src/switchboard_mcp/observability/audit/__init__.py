"""The audit log: hash-chained records of calls, their files, and verification."""
