"""Confines child processes: from the words of the config to system calls between fork and exec. Start with `policy`."""
