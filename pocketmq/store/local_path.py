"""Paths that users give: directories, or URLs of archives."""

from __future__ import annotations

import re
from typing import Final

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_remote(path: str) -> bool:
    """Return whether `path` is a URL, such as `s3a://bucket/store`, and not a `file:` URL."""
    return _URL.match(path) is not None and not path.lower().startswith("file:")
