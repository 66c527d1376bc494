"""The signature of a request: HMAC-SHA1 with the user's password.

It covers the values of all extFields in the order of their names, AccessKey and SecurityToken among
them, followed by the body. It covers neither the request code, nor time, nor opaque: an overheard
request can be replayed. Reference: AclSigner, DefaultAuthenticationContextBuilder.
"""

from __future__ import annotations

import base64
import hmac
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
    return base64.b64encode(_digest(secret, ext_fields, body)).decode()


def signed_by(
    secret: str,
    ext_fields: Mapping[str, str],
    body: bytes | bytearray | memoryview,
    version: int,
) -> bool:
    """Whether the request has the signature that this secret gives, compared in constant time.

    `version` is that of the sender, as its header has it.
    """
    given = ext_fields.get(SIGNATURE, "")
    if version <= _LAST_WITHOUT_IT and _UNIQUE_KEY_QUERY in ext_fields:
        ext_fields = {k: v for k, v in ext_fields.items() if k != _UNIQUE_KEY_QUERY}
    expected = base64.b64encode(_digest(secret, ext_fields, body))
    return hmac.compare_digest(expected, given.encode("utf-8", "replace"))


def _digest(
    secret: str, ext_fields: Mapping[str, str], body: bytes | bytearray | memoryview
) -> bytes:
    values = [ext_fields[name] for name in sorted(ext_fields) if name != SIGNATURE]
    # `replace`: a peer may send halves of surrogate pairs, which no client signs.
    digest = hmac.new(secret.encode(), "".join(values).encode("utf-8", "replace"), "sha1")
    digest.update(body)
    return digest.digest()
