"""The signature of a request: HMAC-SHA1 with the user's password.

It covers the values of all extFields in the order of their names, AccessKey and SecurityToken among
them, followed by the body. It covers neither the request code, nor time, nor opaque: an overheard
request can be replayed. Reference: AclSigner, DefaultAuthenticationContextBuilder.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

CREDENTIALS: Final = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
"""The fields that identify the sender of a request."""

_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_LAST_WITHOUT_IT: Final = 399
"""V4_9_3: clients up to this one add the field after they have signed."""


def sign(
    secret: str, ext_fields: Mapping[str, str], body: bytes | bytearray | memoryview = b""
) -> str:
    """Return the text of the field Signature; an existing field of that name is left out."""
    return _signature(key_of(secret), _values(ext_fields), body).decode()


def key_of(secret: str) -> hmac.HMAC:
    """Return the key of a user for `signed_by` and `is_signature`. Making it costs as much as the
    signature of a short request."""
    return hmac.new(secret.encode(), digestmod="sha1")


def signed_by(
    key: hmac.HMAC,
    ext_fields: Mapping[str, str],
    body: bytes | bytearray | memoryview,
    version: int,
) -> bool:
    """Whether the request has the signature that this key gives, compared in constant time.

    `version` is that of the sender, as its header has it.
    """
    given = ext_fields.get(SIGNATURE, "")
    if version <= _LAST_WITHOUT_IT and _UNIQUE_KEY_QUERY in ext_fields:
        ext_fields = {k: v for k, v in ext_fields.items() if k != _UNIQUE_KEY_QUERY}
    return is_signature(given.encode("utf-8", "replace"), key, _values(ext_fields), body)


def is_signature(
    given: bytes, key: hmac.HMAC, values: bytes | memoryview, body: bytes | bytearray | memoryview
) -> bool:
    """Whether this is the signature of a request whose extFields have these `values`, joined in the
    order of their names; compared in constant time."""
    return hmac.compare_digest(_signature(key, values, body), given)


def _values(ext_fields: Mapping[str, str]) -> bytes:
    values = [ext_fields[name] for name in sorted(ext_fields) if name != SIGNATURE]
    # `replace`: a peer may send halves of surrogate pairs, which no client signs.
    return "".join(values).encode("utf-8", "replace")


def _signature(
    key: hmac.HMAC, values: bytes | memoryview, body: bytes | bytearray | memoryview
) -> bytes:
    digest = key.copy()
    digest.update(values)
    digest.update(body)
    return b2a_base64(digest.digest(), newline=False)
