"""Errors of reads from running brokers."""

from __future__ import annotations


class BrokersNotRead(Exception):
    """The brokers could not be asked; the text gives the name servers and the client's reason."""

    def __init__(self, namesrv: str, what: str, why: object) -> None:
        super().__init__(f"{what} of the brokers at the name server {namesrv}: {why}")
        self.namesrv = namesrv


class QueueNotRead(Exception):
    """A task could not pull from a queue; the text gives the queue and the client's reason."""

    def __init__(self, broker: str, topic: str, queue_id: int, offset: int, why: Exception) -> None:
        super().__init__(f"cannot pull {topic}/{broker}/{queue_id} from offset {offset} on: {why}")
        self.topic = topic
        self.broker = broker
        self.queue_id = queue_id
        self.offset = offset
