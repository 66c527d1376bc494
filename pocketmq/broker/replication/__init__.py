"""Classic replication: copies a master's commit log and tables to its slaves.

The modules without asyncio have the rules: `frames` (bytes), `feed` (a master and one slave),
`intake` (a slave), `replica_waits` (sends that wait for replicas). `ha_server` and `ha_client` are
the two ends of the TCP connection.
"""
