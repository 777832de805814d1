"""Small services of the operating system: atomic writes, processes, file watching."""
