"""The name server: which brokers live, which topics they have, and a small key-value store.

`namesrv.server.NameServer` wires everything. `route_table` and `kv_config` hold the state, without
sockets; `namesrv.processors` answers requests, one module per request family. Several name servers
know nothing of each other: every broker registers with each.
"""
