"""The words of the commands that take sentences: `ask`, `wrap`, `unwrap`, `wrapper`.

Owns how their arguments are read. It does not know what they do.
"""

from __future__ import annotations

from switchboard_mcp.cli.parser import Command, flag, option, positional

ASK = {
    "ask": Command(
        "ask SENTENCE [OPTIONS]",
        "Have a model find and call the subtools for a sentence. Shows the plan and asks before anything is run. The\n"
        "key is taken from ANTHROPIC_API_KEY or CLAUDE_API_KEY; `ask` in the config says the rest.",
        run="commands.ask:run",
        arguments=[
            positional("words", "what you want done", metavar="SENTENCE", nargs="+"),
            option("--suite", "NAME", "with this suite (default: the one that fits best)"),
            option("--context", "TEXT", "what else it takes: names, paths, texts"),
            flag("--yes", "run the plan without asking"),
            flag("--dry-run", "show the plan, run nothing"),
            option("--output", "DIR", "save images, audio and resources into this folder"),
        ],
        epilog=(
            "examples:\n"
            '  switchboard ask "what do you know about Ada?"\n'
            '  switchboard ask --suite files "how large is README.md?" --yes\n'
            '  switchboard ask "delete the entity Bob" --dry-run --json'
        ),
    ),
    "wrap": Command(
        "wrap CHILD [OPTIONS]",
        "Let a child be asked in sentences: its suite has one subtool, natural_language, behind which a model finds\n"
        "and calls the child's own. What the model is told of the child stands in CLAUDE.md beside its file; edit it.",
        run="commands.wrap:run",
        arguments=[
            positional("child", "name of a child"),
            option("--command", "PROGRAM", "what the child shall run (default: this program, by its path)"),
        ],
        epilog=(
            "example:\n  switchboard wrap memory\n"
            "  switchboard call memory natural_language query='remember that Ada likes tea'"
        ),
    ),
    "unwrap": Command(
        "unwrap CHILD [OPTIONS]",
        "Put a wrapped child back as it was, byte for byte. A CLAUDE.md that you changed stays.",
        run="commands.wrap:run_unwrap",
        arguments=[
            positional("child", "name of a child"),
        ],
    ),
    "wrapper": Command(
        "wrapper CHILD [OPTIONS]",
        "Serve a wrapped child over stdio. This is what its file runs; there is no need to run it by hand.",
        run="commands.wrapper:run",
        arguments=[
            positional("child", "name of a child"),
            flag("--governed", "refuse to serve unless the config says governed mode"),
        ],
    ),
}
