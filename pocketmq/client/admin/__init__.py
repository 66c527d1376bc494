"""Administration of a cluster: one class, `Admin`, in rooms by what it looks after."""

from __future__ import annotations

from pocketmq.client.admin.admin import Admin

__all__ = ["Admin"]
