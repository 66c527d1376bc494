"""Which versions of TLS and which cipher suites a context may use: `tls.protocols`, `tls.ciphers`.

Java names suites as IANA does (TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), and OpenSSL in another way
(ECDHE-RSA-AES128-GCM-SHA256); either name is accepted. Python cannot switch off single suites of
TLS 1.3, so a list has all of them, or none and with it no TLS 1.3. Reference: TlsHelper of 5.4.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from pocketmq.remoting.settings.properties_file import ConfigError

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OF_TLS_1_3: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
_IANA: Final = re.compile(r"TLS_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")


def restrict(context: ssl.SSLContext, protocols: str, ciphers: str) -> None:
    """Let a context use only these versions and suites, comma-separated lists; the usual ones if a
    list is empty. Raises ConfigError."""
    versions = _listed(protocols) or list(_VERSIONS)
    for name in versions:
        if name not in _VERSIONS:
            raise ConfigError("tls.protocols", name, " or ".join(_VERSIONS))
    suites = _listed(ciphers)
    if suites:
        versions = _restrict_suites(context, suites, versions)
    chosen = [_VERSIONS[name] for name in versions]
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)


def _listed(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _restrict_suites(context: ssl.SSLContext, suites: list[str], versions: list[str]) -> list[str]:
    """Set the suites; return those of the versions that still have one."""
    newest = _OF_TLS_1_3.intersection(suites)
    if newest and newest != _OF_TLS_1_3:
        missing = ", ".join(sorted(_OF_TLS_1_3 - newest))
        raise ConfigError(
            "tls.ciphers",
            ",".join(suites),
            "a list with all suites of TLS 1.3 or none",
            text=f"tls.ciphers lacks {missing}: name all suites of TLS 1.3, which cannot be "
            "switched off singly, or none of them",
        )
    older = [name for name in suites if name not in _OF_TLS_1_3]
    for name in older:
        if not _is_known(name):
            raise ConfigError("tls.ciphers", name, "a suite that OpenSSL has here")
    if older:
        context.set_ciphers(":".join(map(_openssl_name, older)))
    usable = {"TLSv1.2": bool(older), "TLSv1.3": bool(newest)}
    left = [name for name in versions if usable[name]]
    if not left:
        raise ConfigError(
            "tls.ciphers", ",".join(suites), f"a list with a suite of {' or '.join(versions)}"
        )
    return left


def _is_known(name: str) -> bool:
    openssl_name = _openssl_name(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(openssl_name)
    except ssl.SSLError:
        return False
    return openssl_name in {suite["name"] for suite in context.get_ciphers()}


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite before TLS 1.3."""
    found = _IANA.fullmatch(name)
    if found is None:
        return name
    exchange = found["exchange"].replace("_", "-")
    cipher = found["cipher"].replace("AES_", "AES").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"
