"""How an agent wants to be shown: a colour and an icon, in lists, on the dashboard and in the title of its terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from switchboard_mcp.errors import refused
from switchboard_mcp.suites.invisible_characters import find_invisible

# The colours by name: red, green and blue parts, and a circle for titles, which have no colours.
COLORS: Mapping[str, tuple[tuple[int, int, int], str]] = {
    "red": ((205, 49, 49), "🔴"),
    "orange": ((230, 130, 20), "🟠"),
    "yellow": ((229, 229, 16), "🟡"),
    "green": ((13, 188, 121), "🟢"),
    "cyan": ((17, 168, 205), "🔵"),
    "blue": ((36, 114, 200), "🔵"),
    "magenta": ((188, 63, 188), "🟣"),
    "brown": ((139, 90, 43), "🟤"),
    "black": ((0, 0, 0), "⚫"),
    "gray": ((128, 128, 128), "⚫"),
    "white": ((229, 229, 229), "⚪"),
}
_ALIASES = {"grey": "gray", "purple": "magenta", "violet": "magenta"}
_HEX = re.compile(r"#[0-9a-f]{6}")
# VS Code's names for the colours of terminal tabs, such as terminal.ansiBrightGreen.
_THEME = re.compile(r"terminal\.ansi(?:bright)?([a-z]+)")
MAX_ICON_CHARS = 16


class Styling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A colour, by name or as #rrggbb, and an icon: an emoji or a short word. Empty for none."""

    color: str = ""
    icon: str = ""

    @property
    def is_set(self) -> bool:
        """Return True if there is anything to show."""
        return bool(self.color or self.icon)


def parse_styling(written: Mapping[str, str]) -> Styling:
    """Return the styling. Raises `arguments_invalid` for an unknown key, colour or icon."""
    unknown = sorted(written.keys() - {"color", "icon"})
    if unknown:
        message = f"`styling` has the unknown key '{unknown[0][:80]}'."
        raise refused("arguments_invalid", message, hint="It takes color and icon.")
    color, icon = _color(written.get("color", "")), written.get("icon", "").strip()
    if color is None:
        message = f"'{written['color'][:80]}' is not a known color."
        hint = f"Use #rrggbb, or one of {', '.join(COLORS)}."
        raise refused("arguments_invalid", message, hint=hint)
    if not _is_icon(icon):
        message = f"The icon is longer than {MAX_ICON_CHARS} characters, or has invisible ones."
        raise refused("arguments_invalid", message, hint="Use an emoji or a short word.")
    return Styling(color=color, icon=icon)


def stored_styling(written: Mapping[str, str]) -> Styling:
    """Return what can be shown of a stored styling, which any program may have written."""
    icon = written.get("icon", "")
    return Styling(color=_color(written.get("color", "")) or "", icon=icon if _is_icon(icon) else "")


def _color(written: str) -> str | None:
    text = written.strip().lower()
    theme = _THEME.fullmatch(text)
    name = theme[1] if theme else text
    name = _ALIASES.get(name, name)
    return name if not name or name in COLORS or _HEX.fullmatch(name) else None


def _is_icon(icon: str) -> bool:
    # An emoji may need a variation selector or a joiner.
    return len(icon) <= MAX_ICON_CHARS and not find_invisible(icon, allowed="\ufe0f\u200d")


def nearest_color(color: str) -> str:
    """Return the named colour nearest to this one; empty for none.

    >>> nearest_color("#ff0000"), nearest_color("green"), nearest_color("")
    ('red', 'green', '')
    """
    if not _HEX.fullmatch(color):
        return color
    parts = [int(color[at : at + 2], 16) for at in (1, 3, 5)]

    def distance(name: str) -> int:
        return sum((one - other) ** 2 for one, other in zip(parts, COLORS[name][0], strict=True))

    return min(COLORS, key=distance)


def title(name: str, styling: Styling) -> str:
    """Return the name with its styling, for the title of a terminal.

    >>> title("builder", Styling(color="green", icon="🔧"))
    '🟢 🔧 builder'
    """
    color = nearest_color(styling.color)
    return " ".join(filter(None, (COLORS[color][1] if color else "", styling.icon, name)))
