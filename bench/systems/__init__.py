"""`python -m bench.systems`: this broker beside NATS JetStream and Redis streams.

`loads` names what is measured; `pocketmq`, `nats` and `redis` do it, each with the load generator
of its own project; `comparison` says what the figures mean.
"""
