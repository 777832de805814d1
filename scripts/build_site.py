#!/usr/bin/env python3
"""Makes a site of docs/: one HTML page for each Markdown page, with navigation, and nothing from elsewhere.

scripts/build_site.py [FOLDER]   write to FOLDER (default: build/site); exit code 1 where a page or a link is wrong
scripts/build_site.py --check    write nothing, only look
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

import diagram
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# In this order; a page that is not named here comes after the others of its group.
NAV: dict[str, tuple[str, ...]] = {
    "Start": ("index.md", "tutorial.md", "concepts.md", "troubleshooting.md", "comparison.md"),
    "Hosts": (
        "hosts/README.md",
        "hosts/claude-code.md",
        "hosts/claude-desktop.md",
        "hosts/cursor.md",
        "hosts/vscode.md",
    ),
    "Guides": (
        "setup.md",
        "finding.md",
        "natural-language.md",
        "http.md",
        "dashboard.md",
        "operations.md",
        "middleware.md",
        "security.md",
        "governance.md",
        "lock.md",
        "audit.md",
        "messaging.md",
        "bus.md",
        "workflows.md",
        "protocol.md",
    ),
    "Reference": ("reference/commands.md", "reference/settings.md", "reference/failures.md"),
    "Decisions": ("code.md", "adr/README.md"),
}
FOLDERS = {"hosts": "Hosts", "reference": "Reference", "adr": "Decisions"}

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · Switchboard</title>
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<header><a class="home" href="{up}index.html">Switchboard</a> <a href="#pages">All pages</a></header>
<nav id="pages" aria-label="Pages">
<a class="home" href="{up}index.html">Switchboard</a>
{nav}
</nav>
<main id="main">
{body}
</main>
</body>
</html>
"""

STYLE = """\
:root { --ink: #1b1f24; --dim: #57606a; --paper: #ffffff; --shade: #f5f6f8; --rule: #d8dde3; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --dim: #9aa4ae; --paper: #14171a; --shade: #1e2327; --rule: #343b42; --link: #7db8f5; }
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.6 system-ui, sans-serif;
  display: grid; grid-template-columns: 16rem minmax(0, 1fr); }
a { color: var(--link); }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: .5rem; }
nav { background: var(--shade); border-right: 1px solid var(--rule); padding: 1.5rem 1.25rem; font-size: .925rem;
  position: sticky; top: 0; height: 100vh; overflow-y: auto; }
header { display: none; }
.home { font-weight: 700; font-size: 1.1rem; color: var(--ink); text-decoration: none; }
nav h2 { font-size: .8rem; text-transform: uppercase; letter-spacing: .06em; color: var(--dim);
  margin: 1.25rem 0 .25rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li a { display: block; padding: .15rem 0; text-decoration: none; }
nav li a[aria-current] { font-weight: 700; color: var(--ink); }
main { padding: 2rem clamp(1rem, 4vw, 4rem); max-width: 72rem; }
h1, h2, h3 { line-height: 1.25; text-wrap: balance; }
h2 { margin-top: 2.25rem; }
h1 a, h2 a, h3 a, h4 a { color: inherit; text-decoration: none; }
code { font: .875em ui-monospace, monospace; background: var(--shade); padding: .1em .3em; border-radius: 3px; }
pre { background: var(--shade); border: 1px solid var(--rule); border-radius: 6px; padding: .8rem 1rem;
  overflow-x: auto; line-height: 1.45; }
pre code { background: none; padding: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .925rem; }
th, td { border: 1px solid var(--rule); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--shade); }
img { max-width: 100%; height: auto; }
svg.states { max-width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg.states .state { fill: none; stroke: var(--dim); }
@media (max-width: 48rem) {
  body { display: flex; flex-direction: column; }
  header { display: flex; justify-content: space-between; padding: 1rem; border-bottom: 1px solid var(--rule); }
  nav { order: 3; position: static; height: auto; border: 0; border-top: 1px solid var(--rule); padding: 1rem; }
}
"""


class Site:
    """All pages, what they promise each other, and what is wrong with them."""

    def __init__(self) -> None:
        self.reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
        self.pages = {
            page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")
        }
        self.tokens = {name: self.reader.parse(text) for name, text in self.pages.items()}
        self.titles = {name: title(tokens) for name, tokens in self.tokens.items()}
        self.anchors = {name: set(anchors(tokens)) for name, tokens in self.tokens.items()}
        self.groups = grouped(self.pages)
        self.sources: set[Path] = set()
        self.wrong: list[str] = []

    def render(self, name: str) -> str:
        """One page as HTML."""
        tokens = self.tokens[name]
        if not self.titles[name]:
            self.wrong.append(f"docs/{name}: has no title")
        marks = iter(anchors(tokens))
        for place, token in enumerate(tokens):
            if token.type == "heading_open":
                token.attrSet("id", next(marks))
            for inner in token.children or ():
                for key in ("href", "src"):
                    if target := inner.attrGet(key):
                        inner.attrSet(key, self.link(name, str(target)))
            if token.type == "fence" and token.info.strip() == "mermaid":
                about = next((t.content for t in reversed(tokens[:place]) if t.type == "inline"), "States")
                drawn = f'<figure class="wide">{diagram.svg(token.content, about[:120])}</figure>\n'
                tokens[place] = Token("html_block", "", 0, content=drawn)
        body = self.reader.renderer.render(tokens, self.reader.options, {})
        body = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
        up = "../" * name.count("/")
        return PAGE.format(title=escape(self.titles[name]), up=up, nav=self.nav(name), body=body)

    def link(self, name: str, target: str) -> str:
        """Where a link of a page leads on the site. What lies outside docs/ is brought along."""
        if re.match(r"[a-z]+:", target):
            return target
        path, _, anchor = target.partition("#")
        aim = (DOCS / name).parent.joinpath(path).resolve() if path else DOCS / name
        if not aim.exists() or not aim.is_relative_to(ROOT):
            self.wrong.append(f"docs/{name}: {target} does not exist")
            return target
        if aim.is_dir():
            aim = aim / "README.md"
        if not aim.is_relative_to(DOCS):
            self.sources.add(aim)
            return "../" * name.count("/") + f"source/{aim.relative_to(ROOT).as_posix()}.txt"
        page = aim.relative_to(DOCS).as_posix()
        if page in self.pages:
            if anchor and anchor not in self.anchors[page]:
                self.wrong.append(f"docs/{name}: {target}: there is no heading #{anchor}")
            page = html(page)
        there = os.path.relpath(page, os.path.dirname(name) or ".")
        return Path(there).as_posix() + (f"#{anchor}" if anchor else "")

    def nav(self, here: str) -> str:
        """All pages, the current one marked."""
        up = "../" * here.count("/")
        parts = []
        for group, names in self.groups.items():
            items = []
            for name in names:
                if name.startswith("adr/") and name != "adr/README.md":
                    continue  # their list is one click away
                mark = ' aria-current="page"' if name == here else ""
                items.append(f'<li><a href="{up}{html(name)}"{mark}>{escape(self.titles[name])}</a></li>')
            parts.append(f"<h2>{group}</h2>\n<ul>\n" + "\n".join(items) + "\n</ul>")
        return "\n".join(parts)

    def write(self, folder: Path) -> None:
        """All of it, in place of what was there."""
        if folder.exists():
            shutil.rmtree(folder)
        for name in sorted(self.pages):
            page = folder / html(name)
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(self.render(name), encoding="utf-8")
        (folder / "style.css").write_text(STYLE, encoding="utf-8")
        for file in DOCS.rglob("*"):
            if file.suffix in {".svg", ".png"}:
                copied = folder / file.relative_to(DOCS)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copied)
        for source in sorted(self.sources):
            copied = folder / "source" / f"{source.relative_to(ROOT).as_posix()}.txt"
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copied)


def title(tokens: list[Token]) -> str:
    """The first heading."""
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            return re.sub(r"[`*]", "", tokens[place + 1].content)
    return ""


def anchors(tokens: list[Token]) -> Iterator[str]:
    """The names of headings, as GitHub makes them."""
    seen: dict[str, int] = {}
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            words = re.sub(r"[^\w\- ]", "", tokens[place + 1].content.lower()).replace(" ", "-")
            count = seen.get(words, 0)
            seen[words] = count + 1
            yield f"{words}-{count}" if count else words


def grouped(pages: dict[str, str]) -> dict[str, list[str]]:
    """Every page in its group, those of `NAV` first."""
    found: dict[str, list[str]] = {group: [] for group in NAV}
    for group, names in NAV.items():
        found[group] += [name for name in names if name in pages]
    named = {name for names in NAV.values() for name in names}
    for name in sorted(pages):
        if name not in named:
            found[FOLDERS.get(name.partition("/")[0] if "/" in name else "", "Guides")].append(name)
    return found


def html(name: str) -> str:
    """The file of a page."""
    folder, _, file = name.rpartition("/")
    file = "index.html" if file == "README.md" else f"{file.removesuffix('.md')}.html"
    return f"{folder}/{file}" if folder else file


def main(arguments: list[str]) -> int:
    site = Site()
    if "--check" in arguments:
        for name in site.pages:
            site.render(name)
    else:
        folder = Path(arguments[0]) if arguments else ROOT / "build" / "site"
        site.write(folder)
        print(f"{len(site.pages)} pages in {folder}")
    for line in site.wrong:
        print(line, file=sys.stderr)
    return 1 if site.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
