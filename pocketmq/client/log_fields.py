"""Fields that the client's log records carry beside their text.

Each is an attribute of the LogRecord, for formatters and collectors that keep fields apart:
`mq_client_id`, `mq_group`, `mq_topic`, `mq_broker` (name or address), `mq_queue_id`, `mq_msg_id`,
`mq_code` (of the error) and `mq_retriable`. A record has those that its event has.

    logging.Formatter("%(message)s topic=%(mq_topic)s", defaults={"mq_topic": None})
"""

from __future__ import annotations

from pocketmq.client.errors import RemotingError
from pocketmq.message.message import MessageQueue


def fields(
    error: BaseException | None = None, *, queue: MessageQueue | None = None, **values: object
) -> dict[str, object]:
    """The `extra` of a logging call: these values, those of the queue, and what the error knows."""
    if queue is not None:
        own = {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
        values = own | values
    extra = {f"mq_{name}": value for name, value in values.items() if value is not None}
    if isinstance(error, RemotingError):
        extra["mq_code"] = int(error.code)
        extra["mq_retriable"] = error.retriable
        if error.broker is not None:
            extra.setdefault("mq_broker", error.broker)
    return extra
