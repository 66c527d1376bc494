"""A slave's copies of its master's tables: topics, offsets, delay levels, groups, modes, timers.

They are not in the log, so the slave asks for them. Each table fails alone; what the master does
not know (an older release) stays as it is. Reference: SlaveSynchronize.

A topic without its entry in the table cannot be read, and nobody knows it any more when the master
is lost. So a slave also asks when the log has messages in a queue that its table does not have. The
reference does not: its slaves lack a topic's entry for up to a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from pocketmq.auth.service import inner_signer
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.pop.request_mode import MessageRequestModes
from pocketmq.broker.tables.consumer_offset import LOG_END
from pocketmq.broker.tables.tables import Tables
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.cluster import HARuntimeInfo
from pocketmq.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from pocketmq.remoting.bodies.pop import MessageRequestModeSerializeWrapper
from pocketmq.remoting.bodies.registration import TopicConfigSerializeWrapper
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupWrapper
from pocketmq.remoting.bodies.timer import TimerCheckpointBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import BodyError, RemotingError, error_for
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    Header,
)
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 3.0
FULL_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 3.0
#: Between two requests for topics that the log shows: who copies an old log meets many topics that
#: were deleted, and a table of ten thousand topics has two megabytes.
_TOPICS_SECONDS: Final = 1.0


class MetadataSync:
    """Keeps the tables of a slave like its master's.

    All tables are asked for as soon as a master is known, then every `full_seconds`; that of the
    topics also when a queue is made that it does not have; how far timed messages are delivered,
    every `tick_seconds`. With `tls` the connections are encrypted.

    Attributes:
        master: the address that is asked; empty while there is none.
        rounds: how often all tables were asked for.
        topic_rounds: how often that of the topics was copied because the log had new ones.
        log_end: where the master's log ended when it was asked last; None before it has answered,
            0 if it cannot tell.
    """

    def __init__(
        self,
        config: BrokerConfig,
        tables: Tables,
        delayed: DelayedDelivery,
        modes: MessageRequestModes,
        store: MessageStore,
        *,
        tls: ssl.SSLContext | None = None,
        tick_seconds: float = TICK_SECONDS,
        full_seconds: float = FULL_SECONDS,
    ) -> None:
        self.master = ""
        self.rounds = self.topic_rounds = 0
        self.log_end: int | None = None
        self._config = config
        self._tables = tables
        self._delayed = delayed
        self._modes = modes
        self._store = store
        self._tick = tick_seconds
        self._full = full_seconds
        self._log = LimitedLog(log)
        sign = inner_signer(config)
        self._signs = sign is not None
        self._pool = ConnectionPool(tls=tls, sign=sign)
        self._wake = asyncio.Event()
        self._all_due = True
        # Topics with queues that are not in the table, and that the master was not asked about
        # since they began: the highest queue id of each.
        self._begun: dict[str, int] = {}
        self._topics_due = 0.0  # not earlier
        self._task: KeptTask | None = None
        # The consumer offsets that wait for the log, and for how much of it.
        self._offsets_ahead: tuple[int, ConsumerOffsetSerializeWrapper] | None = None

    def start(self) -> None:
        """Begin; call this on the event loop."""
        self._store.when_queues_begin(self._queue_begun)
        self._task = KeptTask(self._run, "tables of the master")

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            await self._task.stop()
        self._task = None
        await self._pool.close()

    def use(self, master: str) -> None:
        """Ask this address from now on; with the empty one, nobody."""
        if master != self.master:
            self.master = master
            self.ask_now()

    def ask_now(self) -> None:
        """Do not wait for the next time."""
        self._offsets_ahead = None  # perhaps of another master
        self.log_end = None
        self._all_due = True
        self._wake.set()

    @property
    def lacking(self) -> list[str]:
        """The topics of which the log has messages, and for which the master is yet to be asked."""
        if not self.master:  # all tables are asked for when there is one
            self._begun.clear()
        return [name for name, queue_id in self._begun.items() if self._lacks(name, queue_id)]

    def _queue_begun(self, topic: str, queue_id: int) -> None:
        if self.master and self._lacks(topic, queue_id):
            self._begun[topic] = max(queue_id, self._begun.get(topic, 0))
            self._wake.set()

    def _lacks(self, topic: str, queue_id: int) -> bool:
        topics = self._tables.topics
        known = topics.get(topic)
        if known is not None:
            return queue_id >= max(known.read_queue_nums, known.write_queue_nums)
        return not topics.is_system(topic)

    async def introduce(self) -> None:
        """Send the master a signed request, if it is known: it then knows that the HA connection
        that follows from here is a replica's. See `allowed_replicas`."""
        if self._signs and self.master:
            with contextlib.suppress(RemotingError, OSError):
                await self._ask(RequestCode.GET_ALL_DELAY_OFFSET)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_full = loop.time()
        while True:
            next_tick = loop.time() + self._tick
            if self.master:
                if not self._config.enable_controller_mode:  # else the HA connection tells
                    await self._ask_log_end()
                if self._all_due or loop.time() >= next_full:
                    self._all_due = False
                    await self.copy_all()
                    next_full = loop.time() + self._full
                self._follow_offsets()
                if self._config.timer_wheel_enable:
                    await self._copied("timers", self._copy_timers)
            await self._follow_log(next_tick)

    async def _follow_log(self, until: float) -> None:
        """Ask for the topics that the log shows, `until` a time of the loop or `ask_now`."""
        loop = asyncio.get_running_loop()
        while not (self._all_due and self.master) and (now := loop.time()) < until:
            wake_at = until
            if self.lacking:
                if now >= self._topics_due:
                    asked = await self._copied("topics", self._copy_topics)
                    self._topics_due = loop.time() + (_TOPICS_SECONDS if asked else self._tick)
                    self.topic_rounds += asked
                    continue
                wake_at = min(until, self._topics_due)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake_at):
                    await self._wake.wait()

    async def copy_all(self) -> None:
        """Copy every table once."""
        await self._copied("topics", self._copy_topics)
        await self._copied("consumer offsets", self._copy_offsets)
        await self._copied("delay levels' progress", self._copy_delay_offsets)
        await self._copied("consumer groups", self._copy_groups)
        await self._copied("modes of message requests", self._copy_modes)
        self.rounds += 1

    async def _copied(self, what: str, copy: Callable[[], Awaitable[None]]) -> bool:
        try:
            await copy()
            return True
        except (RemotingError, BodyError, OSError, msgspec.MsgspecError) as error:
            self._log.warning(
                "the master's %s are not copied from %s: %s", what, self.master, error
            )
        except Exception:
            # A bug here must not end the copying of the others.
            log.exception("the master's %s are not copied", what)
        return False

    async def _ask(self, code: RequestCode) -> Any:
        return (await self._answer(code)).body

    async def _answer(self, code: RequestCode) -> Command:
        answer = await self._pool.request(self.master, code, Header(), timeout=_REQUEST_SECONDS)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, self.master)
        return answer

    async def _ask_log_end(self) -> None:
        try:
            body = await self._ask(RequestCode.GET_BROKER_HA_STATUS)
            self.log_end = HARuntimeInfo.decode(body).master_commit_log_max_offset
        except (RemotingError, BodyError) as error:
            if isinstance(error, BodyError) or (
                error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            ):
                self.log_end = 0

    async def _copy_topics(self) -> None:
        # What is entered now was sent before the master answers: a topic that it does not have then
        # was deleted after that.
        entered = self._store.commit_log.whole
        # Those that the answer does not have were deleted: they are not asked for again.
        begun, self._begun = self._begun, {}
        try:
            answer = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        except BaseException:
            self._begun = begun | self._begun
            raise
        body = TopicConfigSerializeWrapper.decode(answer)
        topics = self._tables.topics
        deleted = topics.follow_deletions(
            body.topic_config_table, body.pocketmq_deleted_topics or {}
        )
        if deleted:
            # Of a topic that was created again, queues without a message from after that.
            self._store.delete_deleted_queues(deleted)
            for name in deleted:
                self._tables.offsets.forget_topic(name)
        _, gone = topics.follow(body.topic_config_table, body.data_version)
        for name in gone:
            if await self._is_deleted(name):
                self._delete_topic(name, entered)

    async def _is_deleted(self, topic: str) -> bool:
        """Whether the messages of a topic that the master does not name are gone there, too.

        An official broker that becomes the master in the first seconds of a topic has its messages,
        but does not know it until somebody sends to it.
        """
        for queue_id, queue in list(self._store.queues.get(topic, {}).items()):
            if queue.min_offset == queue.max_offset:
                continue
            answer = await self._pool.request(
                self.master,
                RequestCode.GET_MAX_OFFSET,
                GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id),
                timeout=_REQUEST_SECONDS,
            )
            if answer.code != ResponseCode.SUCCESS:
                raise error_for(answer.code, answer.remark, self.master)
            if GetMaxOffsetResponseHeader.from_ext(answer.ext_fields).offset > 0:
                return False
        return True

    def _delete_topic(self, name: str, entered: int) -> None:
        queues = self._store.queues.get(name, {})
        if any(queues[queue_id].max_physical > entered for queue_id in queues):
            return  # it was made anew meanwhile; the next answer has it
        version = self._tables.topics.data_version
        self._tables.topics.delete(name, max(entered, self._tables.topics.created(name)))
        self._tables.topics.data_version = version
        self._store.delete_topic(name)
        self._tables.offsets.forget_topic(name)
        log.info("topic %s was deleted at the master, and is deleted here", name)

    async def _copy_offsets(self) -> None:
        self._follow_offsets()
        if self._offsets_ahead is None:
            answer = await self._answer(RequestCode.GET_ALL_CONSUMER_OFFSET)
            body = ConsumerOffsetSerializeWrapper.decode(answer.body)
            self._offsets_ahead = int(answer.ext_fields.get(LOG_END, "0")), body
        self._follow_offsets()

    def _follow_offsets(self) -> None:
        """Take over the offsets once this broker has the log by which they go.

        The offset of a group that pops is behind messages that are not acknowledged, once their
        checkpoint is in the log. A master without that would never deliver them again.
        """
        if self._offsets_ahead is not None:
            end, body = self._offsets_ahead
            if self._store.commit_log.whole >= end:
                self._offsets_ahead = None
                self._tables.offsets.follow(body.offset_table, body.data_version)

    async def _copy_delay_offsets(self) -> None:
        body = DelayOffsetSerializeWrapper.decode(await self._ask(RequestCode.GET_ALL_DELAY_OFFSET))
        offsets = self._delayed.delay_offsets
        offsets.follow(body.offset_table, body.data_version)
        content = offsets.unsaved()
        if content is not None:
            await asyncio.to_thread(offsets.write, content)

    async def _copy_groups(self) -> None:
        body = SubscriptionGroupWrapper.decode(
            await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        )
        forbidden = msgspec.convert(body.forbidden_table, dict[str, dict[str, int]], strict=False)
        self._tables.groups.follow(body.subscription_group_table, forbidden, body.data_version)

    async def _copy_modes(self) -> None:
        body = MessageRequestModeSerializeWrapper.decode(
            await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        )
        self._modes.follow(body.message_request_mode_map)

    async def _copy_timers(self) -> None:
        try:
            body = await self._ask(RequestCode.GET_TIMER_CHECK_POINT)
        except RemotingError as error:
            if error.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                return  # the master has no timed messages, or is an older release
            raise
        progress = TimerCheckpointBody.decode(body)
        self._delayed.timer.master_at(progress.read_time, progress.queue_offset)
