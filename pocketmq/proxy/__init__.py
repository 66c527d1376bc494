"""The gRPC proxy: RocketMQ 5's own clients, served by the broker of this process or by a cluster.

| package | holds |
|---|---|
| `transport` | HTTP/2 and gRPC on one port, plain and with TLS; the only part that knows sockets |
| `service` | what each call does: typed requests in, typed answers out |
| `port` | the broker port: the broker of this process, or brokers of a cluster |
| `proto` | the wire contract, and the code made from it |

Needs the extra `proxy`.
"""
