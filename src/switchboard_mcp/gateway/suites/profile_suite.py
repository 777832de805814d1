"""Profiles: views that show some of the suites, or some subtools of a suite.

Loaded only if the config has profiles. A profile only restricts: what policy denies stays denied. Hidden suites and
subtools are reported as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

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
    """Permits what two access rules both permit. `carries` is for a profile that shows the read twin of a suite."""

    base: Access
    carries: Callable[[str], bool] | None = None

    def permits(self, subtool: str) -> bool:
        """Return whether the subtool may be listed and called."""
        if self.carries is not None and not self.carries(subtool):
            return False
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
    """A suite of which a profile shows a part. It shares everything else with the whole suite.

    `twin` is the name of the twin that it shows, or empty. The read twin is all that can be called then, so nothing of
    the child is listed under names of its own.
    """

    def __init__(self, suite: ChildSuite, expose: Expose, twin: str = "") -> None:
        self.__dict__.update(suite.__dict__)
        shown = access(expose)
        if twin and self.twins is not None:
            self.twins = structs.replace(self.twins, only=twin)
        reads_only = self.twins is not None and self.twins.reads_only
        if reads_only:
            self.exposure, self.pins, self.shows_apps = "suite", None, False
        self.access = IntersectedAccess(
            allow=shown.allow,
            deny=shown.deny,
            base=suite.access,
            carries=self._is_read if reads_only else None,
        )
        self._profile_access = shown
        self._cost = None
        if suite.pipeline is not None:
            self.pipeline = suite.pipeline.for_suite(self)

    def refusal(self, subtool: str) -> Failure:
        """Report a hidden subtool as unknown."""
        if self._profile_access.permits(subtool) and (self.twins is None or not self.twins.reads_only):
            return super().refusal(subtool)
        names = [tool.name for tool in self.permitted(self.child.inventory.known_tools())]
        message = f"Child '{self.source}' has no subtool '{subtool}'."
        near = nearest(subtool, names)
        return failure("subtool_unknown", message, child=self.source, subtool=subtool, nearest=near)

    def _is_read(self, subtool: str) -> bool:
        """Return False for a subtool that is known not to be read-only. One that is not known is checked when sent."""
        known = (tool for tool in self.child.inventory.known_tools() if tool.name == subtool)
        return all(map(self.is_read_only, known))


def profile_view(
    suites: Mapping[str, ChildSuite], profile: Profile, log: Log, name: str = "", user: Profile | None = None
) -> View:
    """Return the view of a profile. `user` is the profile of that name in the user workspace.

    Children that are included from there are shown only if both profiles show them.
    """
    included = {suite.source for suite in suites.values() if suite.child.spec.scope == "user"}
    shows_own, shows_users = _shows(profile), _shows(user or Profile(suites=[]))
    shown: dict[str, ChildSuite] = {}

    def may_see(child: str, suite: str) -> bool:
        return suite in shown or (
            shows_own(child, suite) and (child not in included or shows_users(child, suite))
        )

    for suite_name, suite in suites.items():
        profiles = [profile] if suite.source not in included else [profile, user or Profile(suites=[])]
        parts = [_part(suite, each) for each in profiles]
        twins = {part for part in parts if part}
        if None not in parts and len(twins) <= 1:
            shown[suite_name] = suite
            for each in profiles:
                shown[suite_name] = _limited(shown[suite_name], suite_name, each, "".join(twins))
    return View(shown, log, may_see, name)


def _part(suite: ChildSuite, profile: Profile) -> str | None:
    """Return what a profile shows of a suite: an empty string for all of it, the name of one twin, or None."""
    shown, hidden = patterns(profile.suites), patterns(profile.hide)
    if hidden.match(suite.source) or hidden.match(suite.name):
        return None
    twins = [] if suite.twins is None else suite.twins.names
    if shown.match(suite.source) or shown.match(suite.name):
        left = [twin for twin in twins if not hidden.match(twin)]
        if left == twins:
            return ""
    else:
        left = [twin for twin in twins if shown.match(twin) and not hidden.match(twin)]
    return None if not left else left[0] if len(left) == 1 else ""


def _limited(suite: ChildSuite, name: str, profile: Profile, twin: str) -> ChildSuite:
    """Return a suite with the subtools and the twin that a profile shows."""
    expose = profile.expose.get(suite.source) or profile.expose.get(name)
    return suite if expose is None and not twin else ProfileSuite(suite, expose or Expose(), twin)


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
    all_profiles = {**profiles, REVOKED_PROFILE: Profile(suites=[])}

    def view(name: str) -> View:
        return profile_view(gateway.all_suites, all_profiles[name], log, name, user_profiles.get(name))

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
