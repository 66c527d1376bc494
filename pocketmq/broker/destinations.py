"""Where late work goes: messages that the broker accepted earlier, and stores in a topic only now.

These are delayed and timed messages that are due, half messages that are committed, and messages
that come back: popped ones that nobody acknowledged, retries, and those that consumers send back.
Meanwhile their topic may have been deleted, created again, or given fewer queues. All of them ask
here first, and this is the rule:

- Each is known by the physical offset of the record that it was accepted with. One from before its
  topic was created belongs to a topic that was deleted, and is dropped
  (`pocketmq.message.incarnation`). One whose topic was deleted and does not exist is dropped, too.
- What waits on is stored again, at a later offset: a timed message that is rolled, a half message
  that is checked, a checkpoint that the timer delivers. It asks before that as well. So a record
  from after the creation of a topic always belongs to that topic.
- A retry also belongs to the topic that it came from (RETRY_TOPIC).
- A message for a queue that nobody can read any more goes to one that can be read.
- A topic that is in no table, but was never deleted, is created: the table was lost.

So nothing brings back a deleted topic, neither in memory nor at the next start.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from pocketmq.broker.tables.topic_config import TopicConfigs

log = logging.getLogger(__name__)

MOST_NAMED: Final = 1_000
"""Topics whose dropped messages are counted one by one."""


class Destinations:
    """The destinations of one broker; without `topics` all are as they were.

    Attributes:
        dropped: how many messages were dropped, by topic.
    """

    def __init__(self, topics: TopicConfigs | None = None) -> None:
        self.dropped: Counter[str] = Counter()
        self._topics = topics
        # The topics whose drops the log has, with the offset of their creation or deletion.
        self._told: dict[str, int] = {}

    def is_gone(self, topic: str, accepted_at: int) -> bool:
        """Tell whether what was accepted at a physical offset was for a topic that was deleted."""
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
        # The same for all that were in order. Those that are only read are to run empty.
        return queue_id % (min(readable, config.write_queue_nums) or readable)

    def drop(self, topic: str, what: str) -> None:
        """Count a message that is dropped; `what` names its kind in the log, once for each
        deletion."""
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
