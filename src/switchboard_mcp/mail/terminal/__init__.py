"""Terminals that other agents can type into: their registry, mailbox and input safety."""
