"""The name server: the live brokers, their topics, and a small key-value store.

`namesrv.server.NameServer` wires everything. `route_table` and `kv_config` hold the state, without
sockets; `namesrv.processors` answers requests, one module per request family. Several name servers
do not know each other: every broker registers with each of them.
"""
