"""Messages that are delivered later than they are sent: delay levels and delivery times.

- `put_hooks` moves such messages to the schedule or timer topic when they are sent;
- `schedule` delivers the messages of each delay level, and `delay_offset` saves its progress;
- `timer` delivers at any time, with the files in `pocketmq.store.timer`;
- `waiting_message` restores a waiting message for delivery;
- `delivery` wires all of them together.
"""
