"""URIs that keep their scheme behind the gateway, because hosts know by it what they are.

The pages of apps and the files of skills are `<scheme>://<child>/<rest>` there; all other resources have the gateway's
own scheme.
"""

from __future__ import annotations

from switchboard_mcp.protocol import apps, skills

SCHEMES = (apps.SCHEME, skills.SCHEME)


def keeps_scheme(uri: str) -> bool:
    """Return True for the URI of a page or of a skill's file."""
    return uri.startswith(SCHEMES)


def host_uri(child: str, uri: str) -> str:
    """Return the URI that hosts use for a child's own."""
    scheme = _scheme(uri)
    return f"{_prefix(scheme, child)}{uri.removeprefix(scheme)}"


def child_uri(child: str, uri: str) -> str | None:
    """Return the child's own URI for one that hosts use, or None if it is not that child's."""
    scheme = _scheme(uri)
    start = _prefix(scheme, child)
    return scheme + uri.removeprefix(start) if uri.startswith(start) else None


def _scheme(uri: str) -> str:
    return next(scheme for scheme in SCHEMES if uri.startswith(scheme))


def _prefix(scheme: str, child: str) -> str:
    from urllib.parse import quote  # only if a child has pages or skills

    return f"{scheme}{quote(child, safe='')}/"
