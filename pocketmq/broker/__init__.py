"""The broker: it stores what producers send and serves it to consumers.

`broker.broker.Broker` wires everything; each module beside it holds one table or service of the
broker, `pocketmq.broker.processors` answers requests, one module per request family.
"""
