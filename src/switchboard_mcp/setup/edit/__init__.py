"""Byte-exact edits of JSONC, TOML and YAML files."""
