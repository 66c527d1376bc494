"""The requests of POP consumption.

- `access`: the checks that they share;
- `pop`, `ack`, `change_invisible_time`: deliver messages and end or extend deliveries;
- `notification`, `peek`: look for messages without popping them;
- `assignment`: which queues a consumer reads, and whether it pops or pulls.
"""
