"""Signs requests with a secret key that is never sent.

    Producer("orders", namesrv=…, credentials=Credentials("ak", "sk"))

The signature is HMAC-SHA1 over the values of all extFields in the order of their names, including
AccessKey and SecurityToken, followed by the body. It covers neither time nor opaque, so it does not
prevent replays: use TLS where others can listen.
Reference: AclClientRPCHook and AclSigner of 5.3.3; ACL 1.0 and 2.0 use the same signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pocketmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign
from pocketmq.client.errors import InvalidName
from pocketmq.remoting.headers.base import Header


class Credentials(msgspec.Struct, frozen=True):
    """An access key (the user name of ACL 2.0) and its secret key.

    `security_token` belongs to temporary keys. Raises InvalidName if either key is empty.
    """

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise InvalidName("credentials need an access key and a secret key")

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("access_key", self.access_key)]

    def sign(
        self,
        header: Header | None,
        ext_fields: Mapping[str, str] | None,
        body: bytes | bytearray | memoryview,
    ) -> dict[str, str]:
        """Return the extFields to send in addition to the header's own fields."""
        added = dict(ext_fields or ())
        added[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            added[SECURITY_TOKEN] = self.security_token
        signed = added if header is None else header.to_ext() | added
        added[SIGNATURE] = sign(self.secret_key, signed, body)
        return added
