"""The message store: commit log, consume queues and the files beside them, as of RocketMQ 5.3.

A message is appended once, to the commit log, whatever its topic; a consume queue per topic and
queue id holds 20-byte entries that point into it. The rooms, from the disk upwards:

- `files` alone opens, maps, extends, syncs and removes files (tests replace it);
- `mapped_file_queue` is a run of fixed-size files named by offset;
- `commit_log` and `consume_queue` append to such runs and read from them;
- `flush` and `allocation` do what would block (syncing, extending) on threads of their own;
- `recovery` brings log and queues together at start, `checkpoint` tells it where to begin;
- `message_store` is what a broker sees of all that.

Everything but those threads runs on one event loop: there are no locks on the way of a message.
Nothing here knows the network, and nothing here imports the broker.
"""
