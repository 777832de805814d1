"""The token figures as one HTML page: no script, nothing fetched from elsewhere, light and dark."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from switchboard_mcp.suites.introspect import VERBOSITIES

if TYPE_CHECKING:
    from switchboard_mcp.cli.commands.tokens import TokenReport
    from switchboard_mcp.suites.savings import Costs, Spread

STYLE = """
:root { color-scheme: light dark; --flat: #b9c0cc; --suite: #1a7f4b; --line: #8886; }
@media (prefers-color-scheme: dark) { :root { --flat: #4a5160; --suite: #4cc38a; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
td.bar { width: 30%; min-width: 8rem; }
.bar div { background: var(--flat); height: .8rem; }
.bar div div { background: var(--suite); }
.sums { display: flex; gap: 3rem; flex-wrap: wrap; margin: 1rem 0; }
.sums b { font-size: 2rem; display: block; }
.wide { overflow-x: auto; }
"""

COLUMNS = ("server", "tools", "flat", "suite", "saved, %", "introspect", *VERBOSITIES, "")


def page(figures: TokenReport) -> str:
    """The whole page."""
    longest = max((cost.flat for cost in figures.servers), default=1) or 1
    rows = "\n".join(_row(cost, longest) for cost in figures.servers)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Tokens saved by Switchboard</title>
<style>{STYLE}</style>
<h1>Tokens saved by Switchboard</h1>
<div class="sums">
<div>{_spread(figures.session)} of a session</div>
<div>{_spread(figures.listing)} at listing</div>
<div><b>{figures.suites:,}</b>tokens listed in place of {figures.flat:,}</div>
</div>
<div class="wide"><table>
<thead><tr><th>{"<th>".join(COLUMNS)}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
<p>Over {figures.sets:,} sets of {figures.servers_per_set} servers, of which {figures.opened} are opened and
{figures.calls} calls made. Base line: {escape(figures.baseline)}. Tokens: {escape(figures.tokenizer)}.</p>
</html>
"""


def _spread(told: Spread) -> str:
    return f"<b>{told.median:.1f} %</b>in the median, {told.p10:.1f} % or more in nine of ten,<br>"


def _row(cost: Costs, longest: int) -> str:
    flat = max(0.5, 100 * cost.flat / longest)
    suite = min(100.0, 100 * cost.suite / cost.flat if cost.flat else 100.0)
    numbers = [
        f"{cost.tools:,}",
        f"{cost.flat:,}",
        f"{cost.suite:,}",
        f"{cost.saved:.1f}",
        f"{cost.introspect:,}",
        *(f"{cost.verbosities[name]:,}" for name in VERBOSITIES),
    ]
    cells = "".join(f"<td>{number}" for number in numbers)
    bar = f'<td class="bar"><div style="width:{flat:.1f}%"><div style="width:{suite:.1f}%"></div></div>'
    return f"<tr><td>{escape(cost.name)}{cells}{bar}</tr>"
