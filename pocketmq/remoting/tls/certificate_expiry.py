"""When a certificate expires, read from its DER: the standard library shows only those of peers.

Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version OPTIONAL, serialNumber, signature,
issuer, validity SEQUENCE { notBefore, notAfter }, ... }, ... } (RFC 5280, section 4.1).
"""

from __future__ import annotations

import datetime as dt
import re
import ssl
from typing import Final

_PEM: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)
_VERSION: Final = 0xA0  # the tag of an explicit version
_UTC_TIME: Final = 0x17  # with two digits of the year


def expiry_of(pem: str) -> float | None:
    """Return the notAfter of the first certificate in a text, in Unix seconds; None if it cannot
    be read."""
    found = _PEM.search(pem)
    if found is None:
        return None
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(found[0]))
    except (ValueError, IndexError):
        return None


def _not_after(der: bytes) -> float:
    _, certificate, _ = _element(der)
    _, rest, _ = _element(certificate)
    tag, _, after = _element(rest)
    if tag == _VERSION:
        rest = after
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    _, _, rest = _element(validity)
    tag, value, _ = _element(rest)
    text = value.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return dt.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC).timestamp()


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the content of the first element, and what follows it."""
    tag, size, at = data[0], data[1], 2
    if size & 0x80:
        at += size & 0x7F
        size = int.from_bytes(data[2:at])
    if at + size > len(data):
        raise ValueError("the certificate ends too early")
    return tag, data[at : at + size], data[at + size :]
