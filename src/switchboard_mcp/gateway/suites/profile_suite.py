"""Profiles: views that show some of the suites, or some subtools of a suite.

Loaded only if the config has profiles. A profile only restricts: what policy denies stays denied. Hidden suites and
subtools are reported as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from switchboard_mcp.config.sections import REVOKED_PROFILE, Expose, Profile
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.views import MaySee, View
from switchboard_mcp.policy.access import Access, access, patterns
from switchboard_mcp.suites.fuzzy import nearest

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.observability.log import Log


NO_PROFILES: Mapping[str, Profile] = {}


class IntersectedAccess(Access, kw_only=True):
    """Permits what two access rules both permit."""

    base: Access

    def permits(self, subtool: str) -> bool:
        """Return whether the subtool may be listed and called."""
        return super().permits(subtool) and self.base.permits(subtool)

    @property
    def allows_nothing(self) -> bool:
        """True if the suite's own allow list counts and is empty."""
        return self.base.allows_nothing

    @property
    def restricts(self) -> bool:
        """True if there is any rule."""
        return super().restricts or self.base.restricts

    def permits_uri(self, uri: str) -> bool:
        """Return True if a resource may be listed and read."""
        return super().permits_uri(uri) and self.base.permits_uri(uri)


class ProfileSuite(ChildSuite):
    """A suite of which a profile shows a part. It shares everything else with the whole suite."""

    def __init__(self, suite: ChildSuite, expose: Expose) -> None:
        self.__dict__.update(suite.__dict__)
        shown = access(expose)
        self.access = IntersectedAccess(allow=shown.allow, deny=shown.deny, base=suite.access)
        self._profile_access = shown
        self._cost = None
        if suite.pipeline is not None:
            self.pipeline = suite.pipeline.for_suite(self)

    def refusal(self, subtool: str) -> Failure:
        """Report a hidden subtool as unknown."""
        if self._profile_access.permits(subtool):
            return super().refusal(subtool)
        known = [tool.name for tool in self.permitted(self.child.inventory.known_tools())]
        message = f"Child '{self.source}' has no subtool '{subtool}'."
        near = nearest(subtool, known)
        return failure("subtool_unknown", message, child=self.source, subtool=subtool, nearest=near)


def profile_view(
    suites: Mapping[str, ChildSuite], profile: Profile, log: Log, name: str = "", user: Profile | None = None
) -> View:
    """Return the view of a profile. `user` is the profile of that name in the user workspace.

    Children that are included from there are shown only if both profiles show them.
    """
    included = {suite.source for suite in suites.values() if suite.child.spec.scope == "user"}
    shows_own, shows_users = _shows(profile), _shows(user or Profile(suites=[]))

    def may_see(child: str, suite: str) -> bool:
        return shows_own(child, suite) and (child not in included or shows_users(child, suite))

    shown: dict[str, ChildSuite] = {}
    for suite_name, suite in suites.items():
        if may_see(suite.source, suite_name):
            shown[suite_name] = _limited(suite, suite_name, profile)
            if user is not None and suite.source in included:
                shown[suite_name] = _limited(shown[suite_name], suite_name, user)
    return View(shown, log, may_see, name)


def _limited(suite: ChildSuite, name: str, profile: Profile) -> ChildSuite:
    """Return a suite with the subtools that a profile shows."""
    expose = profile.expose.get(suite.source) or profile.expose.get(name)
    return suite if expose is None else ProfileSuite(suite, expose)


def _shows(profile: Profile) -> MaySee:
    """Return the function that decides whether a profile shows a child or its suite."""
    shown, hidden = patterns(profile.suites), patterns(profile.hide)

    def shows(child: str, suite: str) -> bool:
        is_hidden = hidden.match(child) or hidden.match(suite)
        return not is_hidden and (shown.match(child) or shown.match(suite))

    return shows


def apply_profiles(
    gateway: Gateway,
    profiles: Mapping[str, Profile],
    of_principal: Mapping[str, str],
    default: str,
    log: Log,
    user_profiles: Mapping[str, Profile] = NO_PROFILES,
) -> None:
    """Set the view of each principal with a profile, and the `default` profile, if any, for everybody else."""
    used = {*of_principal.values(), *([default] if default else [])}
    known = {**profiles, REVOKED_PROFILE: Profile(suites=[])}

    def view(name: str) -> View:
        return profile_view(gateway.all_suites, known[name], log, name, user_profiles.get(name))

    views = {name: view(name) for name in sorted(used)}
    if default:
        gateway.view = views[default]
    gateway.views = {principal: views[profile] for principal, profile in of_principal.items()}
    if gateway.serves_profiles:
        chosen = {session.viewer: REVOKED_PROFILE for session in gateway.sessions if session.viewer}
        chosen |= {profile_viewer(name): name for name in profiles}
        for viewer, name in chosen.items():
            gateway.views.setdefault(viewer, view(name))


def profile_viewer(profile: str) -> str:
    """Return the key of the view of a host that has chosen a profile. No principal is named like it."""
    return f"\0profile {profile}" if profile else ""
