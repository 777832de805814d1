"""Draws a state diagram as SVG: a block per state with a row per event, and lines from the rows to their states.

Reads the `stateDiagram-v2` text that `reference.py` writes, so that pages show the same with and without Mermaid.
"""

from __future__ import annotations

import re
from html import escape

ARROW = re.compile(r"^\s*(\S+) --> (\S+?)(?:: (.*))?$")
ROW, PAD, WIDE, LANE = 20, 10, 215, 16
END = "[*]"
# Chosen to be distinguishable on white and on black, also for colour-blind people.
COLOURS = ("#2a78c0", "#c8590c", "#2c8a57", "#b0408a", "#8a6d00", "#7b61c9", "#d03b3b", "#46808a", "#6b7280")


def arrows(text: str) -> list[tuple[str, str, str]]:
    """Return source, target and event of each arrow."""
    found = [match.groups(default="") for line in text.splitlines() if (match := ARROW.match(line))]
    return [(was, "end" if now == END else now, event) for was, now, event in found]


def svg(text: str, title: str) -> str:
    """Return the SVG for a page; its colours follow the page's."""
    found = arrows(text)
    states = list(dict.fromkeys(state for was, now, _ in found for state in (was, now) if state != END))
    rows: dict[str, list[tuple[str, str]]] = {state: [] for state in states}
    start = next((now for was, now, _ in found if was == END), "")
    for was, now, event in found:
        if was != END:
            rows[was].append((event, now))
    tops, y = {}, PAD
    for state in states:
        tops[state] = y
        y += ROW * (1 + len(rows[state])) + PAD
    targets = [state for state in states if any(now == state for was, now, _ in found if was != END)]
    lanes = {state: WIDE + 40 + LANE * place for place, state in enumerate(targets)}
    width = WIDE + 60 + LANE * len(targets)
    parts = [
        f'<svg class="states" role="img" viewBox="0 0 {width} {y}" width="{width}" height="{y}">',
        f"<title>{escape(title)}</title>",
    ]
    for place, state in enumerate(targets):
        parts += _line(state, place, lanes, tops, rows)
    for state in states:
        parts += _block(state, tops[state], rows[state], state == start)
    return "\n".join([*parts, "</svg>"])


def _line(
    state: str,
    place: int,
    lanes: dict[str, int],
    tops: dict[str, int],
    rows: dict[str, list[tuple[str, str]]],
) -> list[str]:
    """Draw the line from every row that leads to the state, along its lane, to its head."""
    colour, x, head = COLOURS[place % len(COLOURS)], lanes[state], tops[state] + ROW / 2
    sources = [
        tops[was] + ROW * (at + 1) + ROW / 2
        for was, events in rows.items()
        for at, (_, now) in enumerate(events)
        if now == state
    ]
    low, high = min([head, *sources]), max([head, *sources])
    tips = "".join(f"M{WIDE} {y}H{x}" for y in sources)
    return [
        f'<path d="{tips}M{x} {low}V{high}M{x} {head}H{WIDE + 8}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        f'<path d="M{WIDE} {head}l9 -4v8z" fill="{colour}"/>',
        *(f'<circle cx="{WIDE}" cy="{y}" r="3" fill="{colour}"/>' for y in sources),
    ]


def _block(state: str, top: int, events: list[tuple[str, str]], first: bool) -> list[str]:
    height = ROW * (1 + len(events))
    mark = "● " if first else ""
    parts = [
        f'<rect x="1" y="{top}" width="{WIDE - 1}" height="{height}" rx="4" class="state"/>',
        f'<text x="10" y="{top + 14}" font-weight="600" fill="currentColor">{mark}{escape(state)}</text>',
    ]
    for at, (event, now) in enumerate(events):
        label = f"{event} → {now}" if event else f"→ {now}"
        y = top + ROW * (at + 1) + 14
        parts.append(f'<text x="22" y="{y}" fill="currentColor" fill-opacity="0.75">{escape(label)}</text>')
    return parts
