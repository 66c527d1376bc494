"""Paths that users give: a store must be on a local or mounted file system."""

from __future__ import annotations

import re
from typing import Final

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

#: To be said of a path for which `is_remote` is true.
ONLY_LOCAL: Final = "only local paths can be read; copy the store to a disk or mount it"


def is_remote(path: str) -> bool:
    """Return whether `path` is a URL, such as `s3a://bucket/store`, and not a `file:` URL."""
    return _URL.match(path) is not None and not path.lower().startswith("file:")
