"""Rules for every request to the dashboard and every answer.

- The Host header names this machine, so that another site's page cannot reach the dashboard under
  the site's name (DNS rebinding).
- A request that changes something must come from a page of the dashboard.
- Answers load nothing from elsewhere, run no inline script, and are shown in no frame.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Return whether only an operator can have typed a Host header.

    True for IP addresses, because other sites have names, and for the names `localhost` and
    `names`.
    """
    name = _name_of(host)
    if name is None:
        return False
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_own_origin(headers: Mapping[str, str], host: str) -> bool:
    """Return whether, by the browser's headers, a form comes from a page of the dashboard.

    Browsers send at least one of the two headers with every form.
    """
    if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return False
    origin = headers.get("Origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _name_of(host: str) -> str | None:
    """Return the name or address in `name:port`, in lower case; None if the text is not of that
    form."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # fails if it is not a number
    except ValueError:
        return None
    if parts.netloc != host or parts.username is not None or parts.path:
        return None
    name = parts.hostname
    return None if name is None else name.rstrip(".")
