"""pocketmq: RocketMQ in Python.

    from pocketmq import Message, Producer, PullConsumer

    async with Producer("orders", namesrv="127.0.0.1:9876") as producer:
        await producer.send(Message("orders", b"..."))

The stub `__init__.pyi` lists the public names. Each is loaded when it is first used, so that a
process pays for what it uses: a broker loads no client, and only `pocketmq.spark` loads PySpark.

| module | holds |
|---|---|
| `pocketmq` | producers, consumers, `Admin`, messages and the common errors |
| `pocketmq.errors` | all errors |
| `pocketmq.types` | results, options, events and what `Admin` returns |
| `pocketmq.rebalance` | strategies that divide queues among the consumers of a group |
| `pocketmq.selector` | functions that choose a queue, and filters of queues |
| `pocketmq.hooks` | what runs before and after sends and handlers |
| `pocketmq.telemetry` | OpenTelemetry spans (`pip install 'pocketmq[otel]'`) |
| `pocketmq.codes` | request and response codes of the protocol |
| `pocketmq.sync` | the clients without asyncio |
| `pocketmq.embedded` | a name server and a broker in your process |
| `pocketmq.testing` | the pytest plugin |
| `pocketmq.spark` | the Spark data source (`pip install 'pocketmq[spark]'`) |
"""

from __future__ import annotations

from pocketmq._lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    extras={"embedded": "server", "open_store": "arrow", "spark": "spark", "telemetry": "otel"},
)
