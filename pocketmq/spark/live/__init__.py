"""Reads from running brokers: the rows that their files would give, pulled over the network.

`options` reads what a user asks for, `queues` asks the brokers where their queues begin and end,
`planning` finds what is wanted of them, and `splitting` cuts it into the partitions of `partition`.
`hybrid` plans files and brokers together, `pulls` reads ahead in a task, and `reading` makes
batches of what it brings. `stream_brokers` is what a stream asks, and `stream_hybrid` if it reads
files as well. Records come as they are stored, so `pocketmq.store.scan` makes the columns.
"""
