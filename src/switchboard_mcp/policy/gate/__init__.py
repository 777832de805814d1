"""Decides single calls by the rules of the config: allow, ask or deny. Pure; `gateway.gate` asks and enforces."""
