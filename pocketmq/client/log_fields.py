"""Fields of the client's log records, in addition to the text.

Each is an attribute of the LogRecord, for formatters and collectors of structured logs:
`mq_client_id`, `mq_group`, `mq_topic`, `mq_broker` (name or address), `mq_queue_id`, `mq_msg_id`,
`mq_code` (of the error) and `mq_retriable`. A record has only those that apply to it.

    logging.Formatter("%(message)s topic=%(mq_topic)s", defaults={"mq_topic": None})
"""

from __future__ import annotations

from pocketmq.client.errors import RemotingError
from pocketmq.message.message import MessageQueue


def fields(
    error: BaseException | None = None, *, queue: MessageQueue | None = None, **values: object
) -> dict[str, object]:
    """Return the `extra` of a logging call: these values, and those of the queue and the error."""
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
