"""The governed artifacts: report, metrics and stamp, and the claims they prove."""
