"""Bits of a message's sysFlag, which is stored in the record and sent with every message."""

from __future__ import annotations

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2

TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC

BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOST_MASK: Final = 0x30
"""The layout of a record depends on these: its writer sets them, regardless of the client."""

NEED_UNWRAP: Final = 0x40
"""The record holds an inner batch that the client must unpack."""
INNER_BATCH: Final = 0x80

COMPRESSION_TYPE_SHIFT: Final = 8
COMPRESSION_TYPE_MASK: Final = 0x700
"""LZ4 = 0x100, ZSTD = 0x200, ZLIB = 0x300; 0 (old clients, the Go client) means ZLIB too."""
