"""Reads and edits a map of servers in a JSON, TOML or YAML file.

Selects the editor for the format. Every editor works on text, verifies its result, and raises `UnsafeEditError` if it
cannot make the change safely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from switchboard_mcp.setup.edit import jsonc_edit, toml_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError

# `yaml-list`: the servers are items of a list, each with its `name`.
Format = Literal["json", "toml", "yaml", "yaml-list"]
Key = Sequence[str]
Values = Mapping[str, Mapping[str, object]]


def decode(data: bytes) -> str:
    """Decode the content of a file."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnsafeEditError("is not UTF-8. Save it as UTF-8.") from None


def read_servers(text: str, form: Format, key: Key) -> dict[str, object]:
    """Return the servers by name; empty if there are none."""
    if not text.strip("\ufeff \t\r\n"):
        return {}
    if form == "json":
        value = jsonc_edit.read(text, key)
    elif form == "toml":
        value = toml_edit.read(text, key)
    else:
        value = _yaml_editor().read(text, key, listed=form == "yaml-list")
    return value if isinstance(value, dict) else {}


def replace_servers(text: str, form: Format, key: Key, remove: Sequence[str], put: Values) -> str:
    """Remove servers and add others."""
    if form == "json":
        return jsonc_edit.replace_members(text, key, remove, put)
    if form == "toml":
        return toml_edit.replace_tables(text, key, remove, put)
    return _yaml_editor().replace_entries(text, key, remove, put, listed=form == "yaml-list")


def server_texts(text: str, form: Format, key: Key, names: Sequence[str]) -> dict[str, str]:
    """Return the source text of servers."""
    if form == "json":
        return jsonc_edit.member_texts(text, key, names)
    if form == "toml":
        return toml_edit.entry_texts(text, key, names)
    return _yaml_editor().entry_texts(text, key, names, listed=form == "yaml-list")


def restore_servers(text: str, form: Format, key: Key, remove: Sequence[str], back: Mapping[str, str]) -> str:
    """Remove servers and put back others as they were written."""
    if form == "json":
        return jsonc_edit.restore_members(text, key, remove, back)
    if form == "toml":
        return toml_edit.restore_tables(text, key, remove, back)
    return _yaml_editor().restore_entries(text, key, remove, back, listed=form == "yaml-list")


def set_object(text: str, form: Format, key: tuple[str, ...], name: str, value: Mapping[str, object]) -> str:
    """Set members of an object, which is created if needed. Its other members stay."""
    present = read_servers(text, form, (*key, name))
    exists = name in read_servers(text, form, key)
    if exists and all(present.get(key_name) == item for key_name, item in value.items()):
        return text
    if form == "json" and value:
        rest = [key_name for key_name in value if key_name in present]
        return jsonc_edit.replace_members(text, (*key, name), rest, value)
    if present:
        raise UnsafeEditError(f"already has `{'.'.join((*key, name))}`.")
    return replace_servers(text, form, key, [], {name: value})


class YamlEditor(Protocol):
    """The functions of `yaml_edit`. With `listed`, the entries are items of a list."""

    def read(self, text: str, key: Key, *, listed: bool) -> object:
        """Return the entries by name."""

    def replace_entries(
        self, text: str, key: Key, remove: Sequence[str], put: Values, *, listed: bool
    ) -> str:
        """Remove entries and add others."""

    def entry_texts(self, text: str, key: Key, names: Sequence[str], *, listed: bool) -> dict[str, str]:
        """Return the source text of entries."""

    def restore_entries(
        self, text: str, key: Key, remove: Sequence[str], back: Mapping[str, str], *, listed: bool
    ) -> str:
        """Remove entries and put back others as they were written."""


def _yaml_editor() -> YamlEditor:
    from switchboard_mcp.setup.edit import yaml_edit  # PyYAML is loaded only for YAML files.

    return yaml_edit


def guess_format(path: str) -> Format:
    """Return the format of a file by its name."""
    if path.endswith(".toml"):
        return "toml"
    return "yaml" if path.endswith((".yaml", ".yml")) else "json"
