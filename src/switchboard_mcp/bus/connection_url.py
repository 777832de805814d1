"""The Redis connection settings: validates and masks the URL, and loads TLS certificates.

Every error names the setting at fault. Not aware of the client library.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from urllib.parse import parse_qs, unquote, urlsplit

from switchboard_mcp.config.sections import URL_VARIABLE, BusTls
from switchboard_mcp.errors import SwitchboardError, refused

_FORM = (
    "Write redis://USER:PASSWORD@HOST:PORT/DB, or rediss:// for TLS; "
    "percent-encode / ? # and @ in a password as %2F %3F %23 and %40."
)
SCHEMES = ("redis", "rediss", "unix")
# A part of a TLS error's text, and its likely cause; the first match counts.
_REMEDIES = (
    ("mismatch, certificate is not valid", "Its certificate does not match the host in bus.url"),
    ("CERTIFICATE_VERIFY_FAILED", "Its certificate is not signed by bus.tls.caFile, or has expired"),
    ("ALERT", "It does not accept bus.tls.certFile, or requires one"),
    # The connection may be closed before the alert arrives.
    ("Connection reset", "It may require a different certificate: bus.tls.certFile"),
    ("Connection closed", "It may require a different certificate: bus.tls.certFile"),
    ("Connection lost", "It may require a different certificate: bus.tls.certFile"),
    # A Redis without TLS takes the handshake for an unfinished command and waits for the rest.
    ("Timeout connecting", "It may not speak TLS on this port; bus.url begins with rediss://"),
)


def no_address(shown: str) -> SwitchboardError:
    """Return the error for an unusable URL, without the parser's reason: that may contain a part of the password."""
    message = f"bus.url (or {URL_VARIABLE}) is not a valid Redis URL: {shown}."
    return refused("config_invalid", message, hint=_FORM)


def shown(url: str) -> str:
    """Return the URL without its password; for an invalid URL no more than its scheme."""
    scheme = url.partition(":")[0]
    # Any other text before the first colon may be the password.
    no_address = f"{scheme}://…" if scheme in SCHEMES else "…"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return no_address
    if scheme == "unix":
        return f"unix://{parts.path}"
    # An unescaped ? or # in a password ends the host part early, so the rest would show a piece of the password.
    if not host or "@" in parts.query + parts.fragment or not (parts.path.strip("/") or "0").isdigit():
        return no_address
    address = f"[{host}]" if ":" in host else host
    user = f"{parts.username}@" if parts.username else ""
    return f"{scheme}://{user}{address}{f':{port}' if port else ''}{parts.path}"


def hide(url: str, register: Callable[[str], None]) -> None:
    """Register the password, and a URL that contains one, as secrets to be redacted."""
    try:
        parts = urlsplit(url)
        password, in_query = parts.password or "", parse_qs(parts.query).get("password", [])
    except ValueError:
        password, in_query = "", []
    for secret in (password, unquote(password), *in_query, url if "@" in url or in_query else ""):
        if secret:
            register(secret)


def certificates(tls: BusTls) -> ssl.SSLContext:
    """Return a TLS context with the configured CA and client certificate."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
    except OSError as problem:
        raise _unfit("bus.tls.caFile", tls.ca_file, problem) from None
    if not tls.cert_file and tls.key_file:
        message = "bus.tls.keyFile is set, but bus.tls.certFile is not. Set both, or neither."
        raise refused("config_invalid", message)
    if tls.cert_file:
        try:
            # The empty password makes an encrypted key fail instead of prompting on a terminal nobody watches.
            context.load_cert_chain(tls.cert_file, tls.key_file or None, password="")
        except OSError as problem:
            files = f"{tls.cert_file} and {tls.key_file}" if tls.key_file else tls.cert_file
            raise _unfit("bus.tls.certFile with its key (keyFile)", files, problem) from None
    return context


def _unfit(setting: str, file: str, problem: OSError) -> SwitchboardError:
    message = f"{setting} cannot be used: {file}: {problem.strerror or problem}."
    return refused("config_invalid", message, hint="Name a readable PEM file.")


def remedy(url: str, problem: str) -> str:
    """Return the setting to blame for a failed TLS connection; empty if none is known."""
    if not url.startswith("rediss:"):
        return ""
    return next((f" {cause}." for mark, cause in _REMEDIES if mark in problem), "")
