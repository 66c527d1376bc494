"""POP: the broker delivers messages, and delivers them again unless they are acknowledged in time.

A consumer requests messages of a topic, from any queue; the messages that it gets are invisible to
other consumers of the group for a while. A checkpoint contains the messages that one pop took from
one queue, and marks those that are acknowledged. When the invisible time is over, the others are
revived: they go to a retry topic of the group.

- `check_point`: the records of the revive log;
- `buffer`: checkpoints in memory, and the progress of consumer offsets;
- `revive_log`, `revive`: reading the revive log, and reviving messages;
- `order_info`, `order_table`, `order_locks`: messages popped in order;
- `long_polling`: pops that wait for messages;
- `request_mode`, `assignment`: which groups pop and which pull, and from which queues.
"""
