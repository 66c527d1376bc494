"""The requests of POP consumption.

- `access`: who may read which topic;
- `pop`, `ack`, `change_invisible_time`: taking messages, and what becomes of them;
- `notification`, `peek`: looking without taking;
- `assignment`: which queues a consumer reads, and how.
"""
