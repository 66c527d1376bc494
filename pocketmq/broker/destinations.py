"""Where late messages go: the broker accepted them earlier, and stores them in a topic only now.

These are delayed and timed messages that are due, half messages that are committed, popped messages
that were not acknowledged, retries, and messages that consumers send back. Meanwhile their topic
may have been deleted, created again, or given fewer queues. The rules are:

- A message is identified by the physical offset of the record in which it was accepted. If that
  record is older than its topic, the message belongs to a deleted topic of the same name and is
  dropped (`pocketmq.message.incarnation`). So is a message whose topic was deleted and not created
  again.
- A message that has to wait longer is stored again, at a later offset: a timed message that is
  rolled, a half message that is checked, a checkpoint that the timer delivers. These rules apply
  before that, too. So a record that is newer than a topic always belongs to that topic.
- A retry also depends on the topic that it came from (RETRY_TOPIC).
- A message for a queue that is no longer readable goes to a readable one.
- A topic that is missing from the table but was never deleted is created: the table was lost.

So no late message restores a deleted topic, neither in memory nor at the next start.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from pocketmq.broker.tables.topic_config import TopicConfigs

log = logging.getLogger(__name__)

MOST_NAMED: Final = 1_000
"""The most topics whose dropped messages are counted separately."""


class Destinations:
    """The destinations of one broker; without `topics`, no message is moved or dropped.

    Attributes:
        dropped: number of dropped messages by topic.
    """

    def __init__(self, topics: TopicConfigs | None = None) -> None:
        self.dropped: Counter[str] = Counter()
        self._topics = topics
        # The topics whose drops were logged, with the offset of their creation or deletion.
        self._told: dict[str, int] = {}

    def is_gone(self, topic: str, accepted_at: int) -> bool:
        """Tell whether a message accepted at a physical offset was for a deleted topic."""
        return self._topics is not None and accepted_at < self._topics.created(topic)

    def queue_for(
        self, topic: str, queue_id: int, accepted_at: int, origin: str | None = None
    ) -> int | None:
        """Return the queue for a message that was accepted at a physical offset; None to `drop` it.

        A retry has the topic that it came from as its `origin`.
        """
        topics = self._topics
        if topics is None:
            return queue_id
        if accepted_at < topics.created(topic) or (
            origin is not None and accepted_at < topics.created(origin)
        ):
            return None
        config = topics.get(topic)
        if config is None:
            topics.create_for_delivery(topic, queue_id + 1)
            return queue_id
        readable = config.read_queue_nums
        if queue_id < readable or readable <= 0 or topics.is_system(topic):
            return queue_id
        # Ordered messages of one queue stay together. Queues that are only readable must drain.
        return queue_id % (min(readable, config.write_queue_nums) or readable)

    def drop(self, topic: str, what: str) -> None:
        """Count a dropped message. The log names its kind, `what`, once per deletion."""
        if topic in self.dropped or len(self.dropped) < MOST_NAMED:
            self.dropped[topic] += 1
        created = 0 if self._topics is None else self._topics.created(topic)
        if self._told.get(topic) == created:
            return
        if len(self._told) >= MOST_NAMED:
            self._told.clear()
        self._told[topic] = created
        log.warning(
            "topic %s was deleted after it had accepted %s: its late messages are dropped",
            topic,
            what,
        )
