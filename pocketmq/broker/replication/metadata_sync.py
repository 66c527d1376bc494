"""Copies a master's tables to a slave: topics, offsets, delay levels, groups, modes, timers.

They are not in the log, so the slave requests them. If one table fails, the others are still
copied; a table that the master does not support (an older release) stays unchanged. Reference:
SlaveSynchronize.

A topic that is missing from the table cannot be read, and after the loss of the master no broker
knows it. So the slave also requests the topics when the log has messages in a queue that its table
does not have. The reference does not: its slaves lack a new topic for up to a minute.

A slave whose log does not begin with the master's, as that of a new one, also requests where the
queues end of which its part of the log has no message. As a master it would give their offsets
again, and groups that have read further would never get these messages, as with the reference.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.auth.service import inner_signer
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.pop.request_mode import MessageRequestModes
from pocketmq.broker.tables.consumer_offset import LOG_END
from pocketmq.broker.tables.tables import Tables
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.remoting.bodies.cluster import HARuntimeInfo
from pocketmq.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from pocketmq.remoting.bodies.pop import MessageRequestModeSerializeWrapper
from pocketmq.remoting.bodies.registration import TopicConfigSerializeWrapper
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupWrapper
from pocketmq.remoting.bodies.timer import TimerCheckpointBody
from pocketmq.remoting.bodies.topic import TopicStatsTable
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import BodyError, RemotingError, TopicNotExist, error_for
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetTopicStatsInfoRequestHeader,
    Header,
)
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

W = TypeVar("W", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)

TICK_SECONDS: Final = 3.0
FULL_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 3.0
_PAGE: Final = 2_000  # entries of a table in one answer
_ANEW: Final = 3  # times that pages are begun again when the table changed meanwhile
#: Between two requests for topics that the log shows: who copies an old log meets many topics that
#: were deleted, and a table of ten thousand topics has two megabytes.
_TOPICS_SECONDS: Final = 1.0
_MOST_ENDS: Final = 1_000  # topics that are requested for the ends of queues in one round


class NotTheMaster(Exception):
    """The broker at the master's address is not this slave's master. Its tables are not copied:
    they would delete what only this slave has."""


class MetadataSync:
    """Keeps the tables of a slave in sync with its master's.

    All tables are requested as soon as a master is known, then every `full_seconds`; the topics
    also when the log has a queue that the table does not; the progress of timed messages every
    `tick_seconds`. With `tls`, the connections are encrypted.

    Attributes:
        master: the address of the master; empty while there is none.
        rounds: how often all tables were requested.
        topic_rounds: how often the topics were copied because the log had new ones.
        log_end: the end of the master's log in its last answer; None before the first answer, 0 if
            the master does not support this.
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
        # Topics with queues that the table lacks, not requested since the queues were created: the
        # highest queue id of each.
        self._begun: dict[str, int] = {}
        self._topics_due = 0.0  # not earlier
        self._task: KeptTask | None = None
        self._deleting: Iterator[None] = iter(())  # what is left to do of a deletion
        # Progress that waits until the log is copied up to this physical offset.
        self._ahead: dict[str, tuple[int, Callable[[], None]]] = {}
        self._ends_known: set[str] = set()  # topics of which all queues have an end here

    def start(self) -> None:
        """Start; call this on the event loop."""
        self._store.when_queues_begin(self._queue_begun)
        self._task = KeptTask(self._run, "tables of the master")

    async def stop(self) -> None:
        """Stop copying."""
        if self._task is not None:
            await self._task.stop()
        self._task = None
        await self._pool.close()

    def use(self, master: str) -> None:
        """Copy from this address from now on; empty: from none."""
        if master != self.master:
            self.master = master
            self._finish_deleting()
            self.ask_now()

    def _finish_deleting(self) -> None:
        """Delete what is left of deleted topics at once: this broker may be about to become the
        master, and a new message must not come after those of a deleted topic."""
        try:
            for _ in self._deleting:
                pass
        except OSError as error:
            log.error("queues of deleted topics cannot be opened: %s", error)

    def ask_now(self) -> None:
        """Copy now instead of after the current pause."""
        self._ahead.clear()  # it may be from another master
        self._ends_known.clear()
        self.log_end = None
        self._all_due = True
        self._wake.set()

    @property
    def lacking(self) -> list[str]:
        """The topics of queues in the log that the table lacks, until the master has answered."""
        if not self.master:  # all tables are requested once there is one
            self._begun.clear()
        return [name for name, queue_id in self._begun.items() if self._lacks(name, queue_id)]

    def _queue_begun(self, topic: str, queue_id: int) -> None:
        if self.master and self._lacks(topic, queue_id):
            self._begun[topic] = max(queue_id, self._begun.get(topic, 0))
            self._wake.set()

    def _lacks(self, topic: str, queue_id: int) -> bool:
        if topic.startswith(LIGHT_QUEUE_PREFIX):
            return False  # no table has it
        topics = self._tables.topics
        known = topics.get(topic)
        if known is not None:
            return queue_id >= max(known.read_queue_nums, known.write_queue_nums)
        return not topics.is_system(topic)

    async def introduce(self) -> None:
        """Send a signed request to the master, if it is known, so that it accepts an HA connection
        from this address. See `allowed_replicas`."""
        if self._signs and self.master:
            with contextlib.suppress(RemotingError, OSError):
                await self._ask(RequestCode.GET_ALL_DELAY_OFFSET)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_full = loop.time()
        while True:
            next_tick = loop.time() + self._tick
            if self.master:
                if not self._config.enable_controller_mode:  # else the HA connection has it
                    await self._ask_log_end()
                if self._all_due or loop.time() >= next_full:
                    self._all_due = False
                    copied = await self.copy_all()
                    next_full = loop.time() + (self._full if copied else self._tick)
                self._use_progress()
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

    async def copy_all(self) -> bool:
        """Copy every table once; return whether all could be copied."""
        copied = [
            await self._copied("topics", self._copy_topics),
            await self._copied("ends of queues", self._copy_ends),
            await self._copied("consumer offsets", self._copy_offsets),
            await self._copied("delay levels' progress", self._copy_delay_offsets),
            await self._copied("consumer groups", self._copy_groups),
            await self._copied("modes of message requests", self._copy_modes),
        ]
        self.rounds += 1
        return all(copied)

    async def _copied(self, what: str, copy: Callable[[], Awaitable[None]]) -> bool:
        try:
            await copy()
            return True
        except (RemotingError, BodyError, OSError, msgspec.MsgspecError, NotTheMaster) as error:
            self._log.warning(
                "slave cannot copy the master's %s from %s: %s", what, self.master, error
            )
        except Exception:
            # A bug here must not stop the copying of the other tables.
            log.exception("slave cannot copy the master's %s", what)
        return False

    async def _ask(self, code: RequestCode) -> Any:
        return (await self._answer(code)).body

    async def _all(
        self,
        code: RequestCode,
        page_header: Callable[[int, str, int], Header],
        total_header: type[Header],
        body: type[W],
        tables: Callable[[W], tuple[dict[str, Any], ...]],
    ) -> W:
        """Request a table in pages, of one version; from a master before 5.4, which does not tell
        its length, as a whole."""

        async def page(header: Header | None = None) -> tuple[W, int | None]:
            answer = await self._answer(code, header)
            (total,) = msgspec.structs.astuple(total_header.from_ext(answer.ext_fields))
            return body.decode(answer.body), total

        for _ in range(_ANEW):
            whole, total = await page(page_header(0, "", _PAGE))
            while total is not None and (seen := len(tables(whole)[0])) < total:
                version = whole.data_version.encode().decode()
                more, total = await page(page_header(seen, version, _PAGE))
                if more.data_version != whole.data_version or not tables(more)[0]:
                    break
                for known, added in zip(tables(whole), tables(more), strict=True):
                    known.update(added)
            else:
                return whole
        whole, _ = await page()  # it changes all the time
        return whole

    async def _answer(self, code: RequestCode, header: Header | None = None) -> Command:
        answer = await self._pool.request(
            self.master, code, header or Header(), timeout=_REQUEST_SECONDS
        )
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, self.master)
        return answer

    async def _ask_log_end(self) -> None:
        with contextlib.suppress(RemotingError, NotTheMaster):
            await self._check_master()

    async def _check_master(self) -> None:
        """Check that the last answer came from the master whose log this slave has; call this
        before the answer is used. Raises NotTheMaster, RemotingError.

        A master that lost its disk comes back at its address with an empty log and empty tables,
        and may no longer be the master.
        """
        end = self._store.commit_log.end
        try:
            status = HARuntimeInfo.decode(await self._ask(RequestCode.GET_BROKER_HA_STATUS))
        except (RemotingError, BodyError) as error:
            if isinstance(error, BodyError) or (
                error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            ):
                self.log_end = 0
                return
            raise
        if not status.master:
            raise NotTheMaster("it is a slave")
        self.log_end = status.master_commit_log_max_offset
        if self.log_end < end:
            raise NotTheMaster(
                f"its log ends at {self.log_end}, and this broker has the log up to {end}"
            )

    async def _copy_topics(self) -> None:
        # Messages copied until now are older than the master's answer. So if their topic is missing
        # in the answer, it was deleted after they were stored.
        entered = self._store.commit_log.whole
        # Topics that are missing in the answer were deleted, and are not requested again.
        begun, self._begun = self._begun, {}
        try:
            body = await self._all(
                RequestCode.GET_ALL_TOPIC_CONFIG,
                GetAllTopicConfigRequestHeader,
                GetAllTopicConfigResponseHeader,
                TopicConfigSerializeWrapper,
                lambda body: (body.topic_config_table,),
            )
            await self._check_master()
        except BaseException:
            self._begun = begun | self._begun
            raise
        topics = self._tables.topics
        noted = body.pocketmq_deleted_topics
        deleted = topics.follow_deletions(body.topic_config_table, noted or {})
        if deleted:
            # For a topic that was created again: its queues that have only older messages.
            for name in deleted:
                self._tables.offsets.forget_topic(name)
            self._deleting = self._store.delete_deleted_queues(deleted)
            for _ in self._deleting:
                await asyncio.sleep(0)
        _, gone = topics.follow(body.topic_config_table, body.data_version)
        for name in gone:
            if noted is not None and name in noted:
                self._delete_topic(name, noted[name])
            elif await self._is_deleted(name, notes=noted is not None):
                self._delete_topic(name, entered)
        if deleted or gone:
            self._store.cleanup.wake()

    async def _is_deleted(self, topic: str, *, notes: bool) -> bool:
        """Tell whether the master has no messages of a topic that is missing in its table. A master
        that `notes` deletions, but not this one, has not deleted the messages that are here.

        An official broker that becomes master within seconds after a topic was created may have its
        messages, but does not have the topic until a message is sent to it.
        """
        queues = self._store.queues.get(topic, {})
        for queue_id in list(queues):
            await asyncio.sleep(0)  # the queue may have to be opened
            queue = queues.get(queue_id)
            if queue is None or queue.min_offset == queue.max_offset:
                continue
            if notes:
                return False
            header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
            answer = await self._answer(RequestCode.GET_MAX_OFFSET, header)
            if GetMaxOffsetResponseHeader.from_ext(answer.ext_fields).offset > 0:
                return False
        return True

    async def _copy_ends(self) -> None:
        """Request the ends of queues that have no messages here. The log shows whatever is sent to
        them from now on, so each topic is looked at once."""
        what = "ends of queues"
        commit_log = self._store.commit_log
        begins_with_masters = commit_log.end > 0 == commit_log.min_offset
        if begins_with_masters or what in self._ahead:
            return
        known: set[str] = set()
        ends: dict[tuple[str, int], int] = {}
        requests = 0
        for name, topic in list(self._tables.topics.table.items()):
            if name in self._ends_known:
                continue
            queues = range(max(topic.read_queue_nums, topic.write_queue_nums))
            if self._store.ended_queues(name).issuperset(queues):
                await asyncio.sleep(0)  # there may be very many topics
            elif requests == _MOST_ENDS:
                break
            else:
                requests += 1
                ends.update(await self._ends_at_master(name))
            known.add(name)
        if ends:
            await self._check_master()
            if self.log_end:  # else it is not known which messages are included
                self._ahead[what] = self.log_end, partial(self._use_ends, ends)
        self._ends_known |= known
        self._use_progress()

    async def _ends_at_master(self, topic: str) -> dict[tuple[str, int], int]:
        """Return the queue offset that the next message of each queue gets, by topic and queue id;
        nothing if the topic was deleted meanwhile."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        try:
            answer = await self._answer(RequestCode.GET_TOPIC_STATS_INFO, header)
        except TopicNotExist:
            return {}
        table = TopicStatsTable.decode(answer.body).offset_table
        return {(topic, queue.queue_id): each.max_offset for queue, each in table.items()}

    def _use_ends(self, ends: dict[tuple[str, int], int]) -> None:
        table = self._tables.topics.table
        self._store.begin_queues({at: end for at, end in ends.items() if at[0] in table})

    def _delete_topic(self, name: str, entered: int) -> None:
        queues = self._store.queues.get(name, {})
        if any(queues[queue_id].max_physical > entered for queue_id in queues):
            return  # it was created again meanwhile; the next answer contains it
        version = self._tables.topics.data_version
        self._tables.topics.delete(name, max(entered, self._tables.topics.created(name)))
        self._tables.topics.data_version = version
        self._store.delete_topic(name)
        self._tables.offsets.forget_topic(name)
        log.info("topic %s was deleted at the master, and is deleted here", name)

    async def _copy_offsets(self) -> None:
        def read(body: bytes) -> Callable[[], None]:
            copied = ConsumerOffsetSerializeWrapper.decode(body)
            return partial(self._tables.offsets.follow, copied.offset_table, copied.data_version)

        await self._copy_progress("consumer offsets", RequestCode.GET_ALL_CONSUMER_OFFSET, read)

    async def _copy_delay_offsets(self) -> None:
        def read(body: bytes) -> Callable[[], None]:
            copied = DelayOffsetSerializeWrapper.decode(body)
            offsets = self._delayed.delay_offsets
            return partial(offsets.follow, copied.offset_table, copied.data_version)

        await self._copy_progress("delay levels", RequestCode.GET_ALL_DELAY_OFFSET, read)
        await self._delayed.schedule.save()

    async def _copy_timers(self) -> None:
        def read(body: bytes) -> Callable[[], None]:
            copied = TimerCheckpointBody.decode(body)
            return partial(self._delayed.timer.master_at, copied.read_time, copied.queue_offset)

        try:
            await self._copy_progress("timers", RequestCode.GET_TIMER_CHECK_POINT, read)
        except RemotingError as error:
            if error.code not in (
                ResponseCode.SYSTEM_ERROR,  # the master has no timed messages
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,  # an older release
            ):
                raise

    async def _copy_progress(
        self, what: str, code: RequestCode, read: Callable[[bytes], Callable[[], None]]
    ) -> None:
        """Request progress of the master; `read(body)` returns what uses it. Do not request it
        while earlier progress still waits for the log: newer progress would wait even longer."""
        self._use_progress()
        if what not in self._ahead:
            answer = await self._answer(code)
            await self._check_master()
            log_end = int(answer.ext_fields.get(LOG_END, "0"))
            self._ahead[what] = log_end, read(answer.body)
            self._use_progress()

    def _use_progress(self) -> None:
        """Use the copied progress for which this broker has the part of the log that it refers to.

        The offset of a group that pops advances past unacknowledged messages when their checkpoint
        is in the log; delayed and timed messages count as delivered when their copies are in the
        log. A new master with the progress but without these would never deliver the messages.
        """
        whole = self._store.commit_log.whole
        for what in [what for what, (end, _) in self._ahead.items() if end <= whole]:
            _, use = self._ahead.pop(what)
            use()

    async def _copy_groups(self) -> None:
        body = await self._all(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            GetAllSubscriptionGroupRequestHeader,
            GetAllSubscriptionGroupResponseHeader,
            SubscriptionGroupWrapper,
            lambda body: (body.subscription_group_table, body.forbidden_table),
        )
        await self._check_master()
        forbidden = msgspec.convert(body.forbidden_table, dict[str, dict[str, int]], strict=False)
        self._tables.groups.follow(body.subscription_group_table, forbidden, body.data_version)

    async def _copy_modes(self) -> None:
        body = MessageRequestModeSerializeWrapper.decode(
            await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        )
        await self._check_master()
        self._modes.follow(body.message_request_mode_map)
