"""Reads from running brokers: the same rows as from their files, pulled over the network.

`queues` asks the brokers for the ends of their queues, `planning` computes the ranges to read, and
`splitting` cuts them into the partitions of `partition`. `hybrid` plans files and brokers together,
`pulls` reads ahead in a task, and `reading` makes batches of the answers. Streams use
`stream_brokers`, or `stream_hybrid` if they read files too. Records arrive as they are stored, so
`pocketmq.store.scan` makes the columns. `live_options` has the options.
"""
