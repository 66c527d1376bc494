"""Administration of a cluster: one class, `Admin`, in rooms by what it looks after."""

from pocketmq.client.admin.admin import Admin

__all__ = ["Admin"]
