"""The file `queuebounds` as bytes: a line with the digest of the rest, and the rest.

`queue_bounds` describes its purpose. Scans read it here, without msgspec.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

BOUNDS_FILE: Final = "queuebounds"


def sealed(body: bytes) -> tuple[int, bytes]:
    """Return the digest of a body, and the content of its file."""
    digest = digest_of(body)
    return digest, _spelled(digest) + b"\n" + body


def opened(content: bytes) -> tuple[int, bytes]:
    """Return the digest and the body in the content of a file. Raises ValueError if it is
    damaged."""
    head, _, body = content.partition(b"\n")
    digest = digest_of(body)
    if head != _spelled(digest):
        raise ValueError("the digest is another one")
    return digest, body


def digest_of(content: bytes) -> int:
    """Return a digest as the checkpoint has it: a signed integer of 64 bits that is not 0."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), signed=True) or 1


def _spelled(digest: int) -> bytes:
    return b"%016x" % (digest % (1 << 64))
