"""The gRPC proxy: serves RocketMQ 5 (gRPC) clients from the broker in this process or a cluster.

| package | holds |
|---|---|
| `transport` | HTTP/2 and gRPC on one port, plain and with TLS; the only part with sockets |
| `service` | the calls: typed requests in, typed answers out |
| `port` | the broker port: the broker of this process, or brokers of a cluster |
| `proto` | the wire contract, and the code generated from it |

Needs the extra `proxy`.
"""
