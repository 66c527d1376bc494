"""The message store: commit log, consume queues and the files beside them, as of RocketMQ 5.3.

A message is appended once, to the commit log, whatever its topic; a consume queue per topic and
queue id holds 20-byte entries that point into it. The modules, from the disk upwards:

- `files` alone opens, maps, extends, syncs and removes files (tests replace it);
- `log.mapped_file_queue` is a sequence of fixed-size files named by offset;
- `log.commit_log` and `queue.consume_queue` append to such files and read from them;
- `log.flush` and `log.allocation` do what would block (syncing, extending) on their own threads;
- `log.recovery` makes log and queues agree at start, `log.checkpoint` says where it begins;
- `writer` and `reader` put and get messages; `message_store` is what a broker uses;
- `check` finds what is wrong with a store, `repair` repairs it;
- `scan` reads a store from outside.

Everything but those threads runs on one event loop, so putting and getting take no locks.
Nothing here knows the network, and nothing here imports the broker.
"""
