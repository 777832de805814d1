"""Programs: short programs that a model writes, checked and run in a helper process, with calls through the gateway."""
