"""Views that show less: what a profile makes of the suites there are.

Loaded only where the config has profiles. A profile takes away and never adds: what policy denies stays denied. What it
hides reads as if it were not there, wherever it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from switchboard_mcp.config.sections import NOBODY, Expose, Profile
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.views import View
from switchboard_mcp.policy.access import Access, access, patterns
from switchboard_mcp.suites.fuzzy import nearest

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.observability.log import Log


class IntersectedAccess(Access, kw_only=True):
    """Two rules of which both must permit."""

    wider: Access

    def permits(self, subtool: str) -> bool:
        """Whether the subtool may be listed and called."""
        return super().permits(subtool) and self.wider.permits(subtool)


class ProfileSuite(ChildSuite):
    """A suite of which a profile shows a part. All else it shares with the whole one."""

    def __init__(self, whole: ChildSuite, expose: Expose) -> None:
        self.__dict__.update(whole.__dict__)
        shown = access(expose)
        self.access = IntersectedAccess(allow=shown.allow, deny=shown.deny, wider=whole.access)
        self._shown = shown
        self._weighed = None
        if whole.chain is not None:
            self.chain = whole.chain.around(self)

    def refusal(self, subtool: str) -> Failure:
        """What is hidden is not there."""
        if self._shown.permits(subtool):
            return super().refusal(subtool)
        known = [tool.name for tool in self.permitted(self.child.inventory.known_tools())]
        told = f"Child '{self.source}' has no subtool '{subtool}'."
        near = nearest(subtool, known)
        return failure("subtool_unknown", told, child=self.source, subtool=subtool, nearest=near)


def narrowed(suites: Mapping[str, ChildSuite], profile: Profile, log: Log) -> View:
    """What a profile shows."""
    wanted = patterns(profile.suites)

    def knows(child: str, suite: str) -> bool:
        return wanted.match(child) or wanted.match(suite)

    shown: dict[str, ChildSuite] = {}
    for name, suite in suites.items():
        if knows(suite.source, name):
            expose = profile.expose.get(suite.source) or profile.expose.get(name)
            shown[name] = suite if expose is None else ProfileSuite(suite, expose)
    return View(shown, log, knows)


def apply(
    gateway: Gateway, profiles: Mapping[str, Profile], of_principal: Mapping[str, str], own: str, log: Log
) -> None:
    """Give everybody their view: whoever has a profile that one, all others the one that is named, if any."""
    wanted = {*of_principal.values(), *([own] if own else [])}
    known = {**profiles, NOBODY: Profile(suites=[])}
    made = {name: narrowed(gateway.all, known[name], log) for name in sorted(wanted)}
    if own:
        gateway.view = made[own]
    gateway.views = {principal: made[profile] for principal, profile in of_principal.items()}
