"""The `switchboard` command. Serving is dispatched first, because hosts wait for it: no other command is imported."""

from __future__ import annotations

import os
import sys

from switchboard_mcp.broker.joining import join_running


def main() -> int:
    """Serve if the arguments ask for it; otherwise run the command line."""
    if sys.argv[1:3] == ["mail", "hook"]:  # Hosts wait for it after every turn.
        from switchboard_mcp.cli.mail.hook import run_fast

        code = run_fast(sys.argv[3:])
        if code is not None:
            return code
    joined = join_running(sys.argv[1:], os.environ)
    if joined is not None:
        return joined
    from switchboard_mcp.cli import serve_args

    code = serve_args.run(sys.argv[1:])
    if code is not None:
        return code
    from switchboard_mcp.cli.main import main as command_line

    return command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
