"""The index of commands: their names, and where each is declared.

It is all that dispatch needs, so running one command does not import the others. Every command module declares its
commands beside the functions that run them.
"""

from __future__ import annotations

from importlib import import_module

from switchboard_mcp.cli.parser import Command, Parser

# In the order of the reference documentation: name to `module:ATTRIBUTE`, the module relative to this package.
COMMANDS = {
    "serve": "commands.serve:COMMAND",
    "list": "commands.inspect:LIST",
    "introspect": "commands.inspect:INTROSPECT",
    "call": "commands.call:COMMAND",
    "login": "commands.login:LOGIN",
    "logout": "commands.login:LOGOUT",
    "token": "commands.token:COMMAND",
    "secret": "commands.secret:COMMAND",
    "approve": "governance.approve:COMMAND",
    "lock": "governance.lock:COMMAND",
    "gate": "gate.check:COMMAND",
    "approvals": "gate.approvals:COMMAND",
    "sandbox": "sandbox.command:COMMAND",
    "evidence": "governance.evidence:COMMAND",
    "bus": "commands.bus:COMMAND",
    "audit": "governance.audit:COMMAND",
    "find": "commands.find:COMMAND",
    "program": "programs.program_command:COMMAND",
    "tokens": "commands.tokens:COMMAND",
    "status": "commands.status:COMMAND",
    "dashboard": "commands.dashboard:COMMAND",
    "broker": "commands.broker:COMMAND",
    "mail": "mail.group:COMMAND",
    "terminal": "commands.terminal:COMMAND",
    "doctor": "doctor.doctor:COMMAND",
    "init": "commands.init:COMMAND",
    "add": "commands.add:ADD",
    "remove": "commands.add:REMOVE",
    "import": "commands.add:IMPORT",
    "enable": "commands.enable:ENABLE",
    "disable": "commands.enable:DISABLE",
    "revert": "commands.revert:COMMAND",
    "trust": "commands.trust:COMMAND",
    "schema": "commands.schema:COMMAND",
    "completions": "commands.completions:COMMAND",
    "ask": "commands.ask:COMMAND",
    "wrap": "commands.wrap:WRAP",
    "unwrap": "commands.wrap:UNWRAP",
    "wrapper": "commands.wrapper:COMMAND",
}
MAIL_COMMANDS = {
    "mail send": "mail.write:SEND",
    "mail inbox": "mail.read:INBOX",
    "mail read": "mail.read:READ",
    "mail claim": "mail.write:CLAIM",
    "mail ack": "mail.write:ACK",
    "mail wait": "mail.wait:COMMAND",
    "mail receipts": "mail.read:RECEIPTS",
    "mail search": "mail.read:SEARCH",
    "mail thread": "mail.threads:THREAD",
    "mail progress": "mail.threads:PROGRESS",
    "mail agents": "mail.people:AGENTS",
    "mail teams": "mail.people:TEAMS",
    "mail workflow": "mail.workflow:COMMAND",
    "mail dead": "mail.dead:COMMAND",
    "mail verify": "mail.maintenance:VERIFY",
    "mail export": "mail.maintenance:EXPORT",
    "mail backup": "mail.maintenance:BACKUP",
    "mail restore": "mail.maintenance:RESTORE",
    "mail salvage": "mail.maintenance:SALVAGE",
    "mail prune": "mail.maintenance:PRUNE",
    "mail hook": "mail.hook_command:COMMAND",
}
ALL_COMMANDS = {**COMMANDS, **MAIL_COMMANDS}


def load_command(name: str) -> Command:
    """Import the module of a command and return its declaration."""
    module, _, attribute = ALL_COMMANDS[name].partition(":")
    command = getattr(import_module(f"switchboard_mcp.cli.{module}"), attribute)
    assert isinstance(command, Command)
    return command


def parser_for(name: str) -> Parser:
    """Return the argument parser of a command."""
    return Parser(name, load_command(name))
