"""Administration of a cluster: the class `Admin`, with a module for each area."""

from __future__ import annotations

from pocketmq.client.admin.admin import Admin

__all__ = ["Admin"]
