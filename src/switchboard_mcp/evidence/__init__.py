"""The evidence artifacts of governed mode: report, metrics and stamp, and the claims they prove."""
