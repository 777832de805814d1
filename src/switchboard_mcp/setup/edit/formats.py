"""One way to change a map of servers, whatever the format of the file it stands in.

Owns which editor serves which format. Each works on text, reads back what it wrote, and raises `UnsafeEditError`
where it cannot be sure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from switchboard_mcp.setup.edit import jsonc_edit, toml_edit, yaml_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError

# `yaml-list`: the servers are items of a list, each with its `name`.
Format = Literal["json", "toml", "yaml", "yaml-list"]
Key = Sequence[str]
Values = Mapping[str, Mapping[str, object]]


def decode(data: bytes) -> str:
    """The text of a file."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnsafeEditError("is not UTF-8. Save it as UTF-8.") from None


def read_servers(text: str, form: Format, key: Key) -> dict[str, object]:
    """The map of servers by name; empty where there is none."""
    if not text.strip("\ufeff \t\r\n"):
        return {}
    if form == "json":
        value = jsonc_edit.read(text, key)
    elif form == "toml":
        value = toml_edit.read(text, key)
    else:
        value = yaml_edit.read(text, key, listed=form == "yaml-list")
    return value if isinstance(value, dict) else {}


def replace_servers(text: str, form: Format, key: Key, remove: Sequence[str], put: Values) -> str:
    """Take servers out, put others in."""
    if form == "json":
        return jsonc_edit.replace_members(text, key, remove, put)
    if form == "toml":
        return toml_edit.replace_tables(text, key, remove, put)
    return yaml_edit.swap(text, key, remove, put, listed=form == "yaml-list")


def server_texts(text: str, form: Format, key: Key, names: Sequence[str]) -> dict[str, str]:
    """Servers as they are written."""
    if form == "json":
        return jsonc_edit.member_texts(text, key, names)
    if form == "toml":
        return toml_edit.entry_texts(text, key, names)
    return yaml_edit.entry_texts(text, key, names, listed=form == "yaml-list")


def restore_servers(text: str, form: Format, key: Key, remove: Sequence[str], back: Mapping[str, str]) -> str:
    """Take servers out, put others back as they were written."""
    if form == "json":
        return jsonc_edit.restore_members(text, key, remove, back)
    if form == "toml":
        return toml_edit.restore_tables(text, key, remove, back)
    return yaml_edit.restore(text, key, remove, back, listed=form == "yaml-list")


def guess_format(path: str) -> Format:
    """What the name of a file says of its format."""
    if path.endswith(".toml"):
        return "toml"
    return "yaml" if path.endswith((".yaml", ".yml")) else "json"
