"""The commands: each module declares its commands beside the functions that run them."""
