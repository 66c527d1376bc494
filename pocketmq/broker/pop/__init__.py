"""POP: the broker hands out messages and takes them back when they are not acknowledged.

A consumer asks for messages of a topic, of any queue; what it gets is invisible to others for a
while. A checkpoint says which messages one pop took from one queue. Acknowledged messages are
marked in it. What is left when its time is over goes to a retry topic of the group.

- `check_point`: the records of the revive log;
- `buffer`: checkpoints in memory, and how far the consumer offsets may move;
- `revive_log`, `revive`: what the revive log says, and taking back what was not acknowledged;
- `order_info`: messages popped in order;
- `parked`: pops that wait for messages;
- `request_mode`, `assignment`: who pops, and who pulls.
"""
