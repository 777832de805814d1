"""The command line. `main` dispatches to one module per command, loaded when it runs."""
