#!/usr/bin/env python3
"""Draws docs/picture.svg: the output of `make demo` on a terminal, with its colours.

scripts/picture.py           play the demo, write the picture
scripts/picture.py --check   fail where the demo says something else now; how long it took does not matter
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from html import escape, unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "picture.svg"
COLUMNS = 104
# What a reader needs to get the idea; the rest of the demo is for a terminal.
LAST = "it calls a subtool"
WIDE, HIGH, PAD = 8.0, 19, 18
CODE = re.compile(r"\x1b\[([\d;]*)m")
CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}
TIMES = re.compile(r"\d+(\.\d+)? m?s\b")

SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>What `make demo` prints</title>
<style>
rect {{ fill: #fbfbfa; stroke: #d0d5da }}
text {{ font: 13px ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f;
  white-space: pre }}
.b {{ font-weight: 700 }} .d {{ fill: #667079 }} .r {{ fill: #c4312a }} .g {{ fill: #1a7f4b }} .y {{ fill: #8a5a00 }}
.c {{ fill: #0b6a8a }}
@media (prefers-color-scheme: dark) {{
  rect {{ fill: #14171a; stroke: #343b42 }} text {{ fill: #e4e8ec }}
  .d {{ fill: #98a2ac }} .r {{ fill: #f0746c }} .g {{ fill: #5cc98d }} .y {{ fill: #e2b04a }} .c {{ fill: #6cc5e0 }}
}}
</style>
<rect x="0.5" y="0.5" width="{inner}" height="{under}" rx="8"/>
{lines}
</svg>
"""


def recorded() -> list[str]:
    """Return the demo's lines, as a terminal gets them."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    play = [sys.executable, "examples/demo.py"]
    process = subprocess.Popen(play, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=follower)
    os.close(follower)
    seen = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # its other end is closed
            break
        if not part:
            break
        seen += part
    os.close(leader)
    if process.wait() != 0:
        raise SystemExit("the demo failed; `make demo` shows why")
    lines = ["\x1b[2m$\x1b[0m make demo", *seen.decode().replace("\r", "").rstrip("\n").split("\n")]
    end = next(place for place, line in enumerate(lines) if LAST in line.lower())
    stop = next(place for place, line in enumerate(lines) if place > end and not line.strip())
    return lines[:stop]


def spans(line: str) -> str:
    """Return one line with its colours as classes."""
    parts, classes = [], ""
    for place, piece in enumerate(CODE.split(line)):
        if place % 2:
            classes = " ".join(CLASSES[code] for code in piece.split(";") if code in CLASSES)
        elif piece:
            text = escape(piece)
            parts.append(f'<tspan class="{classes}">{text}</tspan>' if classes else text)
    return "".join(parts)


def draw(lines: list[str]) -> str:
    width, height = round(COLUMNS * WIDE + 2 * PAD), HIGH * len(lines) + 2 * PAD
    rows = [
        f'<text x="{PAD}" y="{PAD + HIGH * place + 14}" xml:space="preserve">{spans(line)}</text>'
        for place, line in enumerate(lines)
    ]
    return SVG.format(width=width, height=height, inner=width - 1, under=height - 1, lines="\n".join(rows))


def words_of(picture: str) -> list[str]:
    """Return the words of a picture, without times."""
    rows = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    return [TIMES.sub("", unescape(re.sub(r"<[^>]+>", "", row))).rstrip() for row in rows]


def main() -> int:
    picture = draw(recorded())
    if "--check" in sys.argv[1:]:
        if words_of(PICTURE.read_text(encoding="utf-8")) != words_of(picture):
            print("docs/picture.svg shows another demo: run `make picture`", file=sys.stderr)
            return 1
        return 0
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
