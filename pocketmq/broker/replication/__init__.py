"""Copying a master's commit log to its slaves, and what follows from it.

The modules without asyncio hold the rules: `frames` (bytes), `feed` (a master and one slave),
`intake` (a slave), `replica_waits` (sends that wait for replicas). `ha_server` and `ha_client`
carry them over TCP.
"""
