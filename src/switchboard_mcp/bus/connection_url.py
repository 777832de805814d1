"""Where Redis is and how it proves who it is: the address without its password, and the certificates of TLS.

Every fault is told by the name of the setting it is in. Does not know the client library.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from urllib.parse import parse_qs, unquote, urlsplit

from switchboard_mcp.config.sections import URL_VARIABLE, BusTls
from switchboard_mcp.errors import SwitchboardError, refused

_FORM = (
    "Write redis://USER:PASSWORD@HOST:PORT/DB, or rediss:// for TLS; "
    "signs such as / ? # and @ in a password as %2F %3F %23 and %40."
)
SCHEMES = ("redis", "rediss", "unix")
# What TLS says in a failure, and what is to be done about it; the first that fits.
_REMEDIES = (
    ("mismatch, certificate is not valid", "Its certificate is for another host than bus.url names"),
    ("CERTIFICATE_VERIFY_FAILED", "Its certificate is not vouched for by bus.tls.caFile, or has expired"),
    ("ALERT", "It does not accept bus.tls.certFile, or wants one"),
    # The alert may be overtaken by the end of the connection.
    ("Connection reset", "It may want another certificate: bus.tls.certFile"),
    ("Connection closed", "It may want another certificate: bus.tls.certFile"),
    ("Connection lost", "It may want another certificate: bus.tls.certFile"),
    # A Redis without TLS waits for more of what it takes for a command.
    ("Timeout connecting", "It may not speak TLS at this port; bus.url begins with rediss://"),
)


def no_address(shown: str) -> SwitchboardError:
    """The address cannot be one. Why is not told: the parser's words may hold a part of the password."""
    told = f"bus.url (or {URL_VARIABLE}) is no address of Redis: {shown}."
    return refused("config_invalid", told, hint=_FORM)


def shown(url: str) -> str:
    """The address without its password; of one that is none, no more than how it begins."""
    scheme = url.partition(":")[0]
    # Where another word stands before the first colon, that may be the password.
    no_address = f"{scheme}://…" if scheme in SCHEMES else "…"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return no_address
    if scheme == "unix":
        return f"unix://{parts.path}"
    # A password with a ? or # in it ends what is taken for the host, or for its port.
    if not host or "@" in parts.query + parts.fragment or not (parts.path.strip("/") or "0").isdigit():
        return no_address
    place = f"[{host}]" if ":" in host else host
    who = f"{parts.username}@" if parts.username else ""
    return f"{scheme}://{who}{place}{f':{port}' if port else ''}{parts.path}"


def hide(url: str, register: Callable[[str], None]) -> None:
    """Never show the address with its password."""
    try:
        parts = urlsplit(url)
        password, asked = parts.password or "", parse_qs(parts.query).get("password", [])
    except ValueError:
        password, asked = "", []
    for secret in (password, unquote(password), *asked, url if "@" in url or asked else ""):
        if secret:
            register(secret)


def certificates(tls: BusTls) -> ssl.SSLContext:
    """Whom to trust and what to show."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
    except OSError as problem:
        raise _unfit("bus.tls.caFile", tls.ca_file, problem) from None
    if not tls.cert_file and tls.key_file:
        told = "bus.tls.keyFile is the key of a certificate, and bus.tls.certFile names none."
        raise refused("config_invalid", told)
    if tls.cert_file:
        try:
            # A key that wants a password is refused: nobody sits there to be asked for it.
            context.load_cert_chain(tls.cert_file, tls.key_file or None, password="")
        except OSError as problem:
            files = f"{tls.cert_file} and {tls.key_file}" if tls.key_file else tls.cert_file
            raise _unfit("bus.tls.certFile with its key (keyFile)", files, problem) from None
    return context


def _unfit(setting: str, file: str, problem: OSError) -> SwitchboardError:
    told = f"{setting} cannot be used: {file}: {problem.strerror or problem}."
    return refused("config_invalid", told, hint="Name a PEM file that can be read here.")


def remedy(url: str, problem: str) -> str:
    """Which setting a failure to connect over TLS speaks of; empty where it is none of them."""
    if not url.startswith("rediss:"):
        return ""
    return next((f" {told}." for mark, told in _REMEDIES if mark in problem), "")
