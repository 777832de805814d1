"""The options of serving over stdio, parsed by hand: importing an argument parser would cost more than all of it."""

from __future__ import annotations

FLAGS = {
    "--workspace": "workspace",
    "--config": "config",
    "--profile": "profile",
    "--log-level": "log_level",
    "--log-format": "log_style",
}
# Options without a value, and the setting that each sets.
SWITCHES = {"--no-reload": ("reload", False), "--alone": ("alone", True)}
CHOICES = {"log_level": ("debug", "info", "warning", "error"), "log_style": ("text", "json")}


def parse_flags(arguments: list[str]) -> dict[str, str | bool] | None:
    """Return the options by name if the arguments ask only for serving over stdio; otherwise None."""
    rest = list(arguments)
    if "serve" in rest:
        place = rest.index("serve")
        # After an option that takes a value, it is that value.
        if place == 0 or rest[place - 1] not in FLAGS:
            del rest[place]
    options: dict[str, str | bool] = {}
    for switch, (name, value) in SWITCHES.items():
        if switch in rest:
            rest.remove(switch)
            options[name] = value
    while rest:
        flag, equals, text = rest[0].partition("=")
        width = 1 if equals else 2
        if flag not in FLAGS or len(rest) < width:
            return None
        name = FLAGS[flag]
        options[name] = text if equals else rest[1]
        if name in CHOICES and options[name] not in CHOICES[name]:
            return None
        rest = rest[width:]
    return options
