"""Operating system services: atomic writes, processes, globs, file watching."""
