"""Reads from running brokers: the rows that their files would give, pulled over the network.

`options` reads what a user asks for, `queues` asks the brokers where their queues begin and end,
`planning` splits what is wanted, `pulls` reads ahead, and `partition` is what Spark hands to its
tasks. Records come as they are stored, so `pocketmq.store.scan` makes the columns.
"""
