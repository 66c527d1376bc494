# Written by scripts/write_sync_stub.py; see sync.py.

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType, UnionType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from pocketmq.client.consumer.consumer_event import ConsumerEvent
from pocketmq.client.consumer.consumer_options import ShareCallback
from pocketmq.client.consumer.dispatch.handlers import TypedHandler
from pocketmq.client.consumer.fetch.puller import PullResult
from pocketmq.client.consumer.rebalance.strategies import Strategy
from pocketmq.client.consumer.router import PayloadDecorator, Router, UnionDecorator
from pocketmq.client.errors import RemotingError
from pocketmq.client.observation.consume_hooks import ConsumeHook, ConsumeHookList
from pocketmq.client.observation.send_hooks import AnySendHook, HookList
from pocketmq.client.offsets import Position
from pocketmq.client.options import ClientOptions
from pocketmq.client.parameters import Milliseconds, Seconds
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.queue_choice import Selector, ShardingKey
from pocketmq.client.producer.transaction import (
    Check,
    LocalTransaction,
    Transaction,
    TransactionResult,
)
from pocketmq.client.selector.filters import QueueFilter
from pocketmq.client.selector.latency import BrokerState
from pocketmq.client.selector.penalty import Selection
from pocketmq.client.selector.switches import Switches
from pocketmq.client.send_result import SendResult
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.remoting.bodies.cluster import ClusterInfo, HARuntimeInfo
from pocketmq.remoting.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    ProducerInfo,
)
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.bodies.table import BrokerStatsData
from pocketmq.remoting.bodies.topic import TopicStatsTable
from pocketmq.sync_client import Later as Later
from pocketmq.sync_push import ConsumedMessage as ConsumedMessage

__all__ = [
    "Admin",
    "ConsumedMessage",
    "Later",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
]
P = TypeVar("P")
B = TypeVar(
    "B", bound=Callable[[list[ConsumedMessage]], object] | Callable[[list[Message]], object]
)
H = TypeVar("H", bound=Callable[[ConsumedMessage], object] | Callable[[Message], object])

class Admin:
    timeout: float
    def __init__(
        self,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout: Seconds = 5.0,
        **options: Unpack[ClientOptions],
    ) -> None: ...
    def topics(self, *, cluster: str | None = None) -> list[str]: ...
    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        perm: int = 6,
        cluster: str | None = None,
        broker: str | None = None,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        allow_shrink: bool = False,
    ) -> list[str]: ...
    def unreadable_queues(self, topic: str) -> dict[MessageQueue, int]: ...
    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None: ...
    def delete_topics(self, topics: Iterable[str], *, cluster: str | None = None) -> None: ...
    def topic_configs(self, topic: str) -> dict[str, TopicConfig]: ...
    def topic_stats(self, topic: str) -> TopicStatsTable: ...
    def groups_of_topic(self, topic: str) -> list[str]: ...
    def groups(self, *, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]: ...
    def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        config: SubscriptionGroupConfig | None = None,
    ) -> list[str]: ...
    def delete_group(
        self, group: str, *, cluster: str | None = None, clean_offsets: bool = False
    ) -> None: ...
    def delete_groups(
        self, groups: Iterable[str], *, cluster: str | None = None, clean_offsets: bool = False
    ) -> None: ...
    def consumers(self, group: str) -> ConsumerConnection: ...
    def producers(self, group: str) -> list[Connection]: ...
    def producer_groups(self) -> dict[str, list[ProducerInfo]]: ...
    def running_info(self, group: str, client_id: str) -> ConsumerRunningInfo: ...
    def topics_of_group(self, group: str) -> list[str]: ...
    def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats: ...
    def lag(self, group: str, topic: str | None = None) -> int: ...
    def min_offset(self, queue: MessageQueue) -> int: ...
    def max_offset(self, queue: MessageQueue) -> int: ...
    def offset_at(self, queue: MessageQueue, time: datetime) -> int: ...
    def earliest_store_time(self, queue: MessageQueue) -> int | None: ...
    def group_offset(self, group: str, queue: MessageQueue) -> int | None: ...
    def set_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None: ...
    def reset_offsets(
        self, group: str, topic: str, to: datetime | int | Literal["begin", "end"]
    ) -> dict[MessageQueue, int]: ...
    def clone_offsets(self, source: str, target: str, topic: str | None = None) -> None: ...
    def messages_by_key(
        self, topic: str, key: str, *, max_messages: int = 64
    ) -> list[MessageExt]: ...
    def messages_by_tag(
        self, topic: str, tag: str, *, max_messages: int = 64
    ) -> list[MessageExt]: ...
    def messages_by_id(self, topic: str, msg_id: str) -> list[MessageExt]: ...
    def message_by_offset_id(self, msg_id: str) -> MessageExt | None: ...
    def message_at(self, queue: MessageQueue, offset: int) -> MessageExt | None: ...
    def read(
        self, queue: MessageQueue, offset: int, *, max_messages: int = 32
    ) -> PullResult[MessageExt]: ...
    def messages(self, queue: MessageQueue, offset: int = 0) -> Iterator[MessageExt]: ...
    def deliver_again(self, group: str, message: MessageExt) -> None: ...
    def config(self, namespace: str) -> dict[str, str]: ...
    def get_config(self, namespace: str, key: str) -> str | None: ...
    def put_config(self, namespace: str, key: str, value: str) -> None: ...
    def delete_config(self, namespace: str, key: str) -> None: ...
    def broker_config(self, broker: str) -> dict[str, str]: ...
    def update_broker_config(
        self, settings: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]: ...
    def drain_broker(self, broker: str) -> list[str]: ...
    def undrain_broker(self, broker: str) -> list[str]: ...
    def wipe_write_perm(self, broker: str) -> None: ...
    def namesrv_config(self) -> dict[str, str]: ...
    def update_namesrv_config(self, settings: Mapping[str, str]) -> None: ...
    def broker_runtime(self, broker: str, *, member: int = ...) -> dict[str, str]: ...
    def broker_replication(self, broker: str) -> HARuntimeInfo: ...
    def broker_stats(self, name: str, key: str) -> dict[str, BrokerStatsData]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> None: ...
    def shutdown(self) -> None: ...
    def cluster_info(self) -> ClusterInfo: ...
    def ping(self) -> None: ...
    def topic_route(self, topic: str) -> TopicRouteData: ...
    def queues(self, topic: str) -> tuple[MessageQueue, ...]: ...

class Producer:
    group: str
    hooks: HookList
    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        timeout: Seconds = 10.0,
        retries: int = 2,
        attempt_timeout: Seconds | None = None,
        require_send_ok: bool = False,
        queue_selector: str | Selector = "hash",
        linger_ms: Milliseconds = 0,
        accumulate: bool = True,
        max_buffered_bytes: int = ...,
        compression: str | None = "zlib",
        compress_over: int = 4096,
        compression_level: int = 5,
        max_message_size: int = ...,
        batch_bytes: int = ...,
        max_in_flight: int = 32768,
        hooks: Sequence[AnySendHook] = ...,
        trace: bool | str = False,
        template_topic: str = ...,
        template_queues: int = 4,
        filters: Sequence[QueueFilter] = ...,
        send_latency_enable: bool = True,
        start_detector_enable: bool = True,
        detect_interval_ms: Milliseconds = 2000,
        detect_timeout_ms: Milliseconds = 200,
        latency_max_ms: Sequence[Milliseconds] = ...,
        not_available_duration_ms: Sequence[Milliseconds] = ...,
        selection: Selection | str = "penalised",
        **client: Unpack[ClientOptions],
    ) -> None: ...
    @property
    def timeout(self) -> float: ...
    @timeout.setter
    def timeout(self, value: Seconds) -> None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def buffered_bytes(self) -> int: ...
    @property
    def brokers(self) -> tuple[BrokerState, ...]: ...
    @property
    def healthy(self) -> bool: ...
    @property
    def last_success(self) -> float | None: ...
    def ping(self, *, timeout: Seconds = 1.0) -> None: ...
    @property
    def switches(self) -> Switches: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> None: ...
    def shutdown(self) -> None: ...
    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> SendResult: ...
    def post(
        self, message: Message, *, queue: MessageQueue | None = None, key: ShardingKey | None = None
    ) -> Later[SendResult]: ...
    def flush(self) -> None: ...
    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> None: ...
    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> list[SendResult]: ...
    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> MessageExt: ...
    def reply(
        self, request: MessageExt, body: bytes, *, timeout: Seconds | None = None
    ) -> SendResult: ...
    def recall(
        self, topic: str, recall_handle: str | None, *, timeout: Seconds | None = None
    ) -> str: ...
    def queues(self, topic: str) -> tuple[MessageQueue, ...]: ...

class PullConsumer:
    group: str
    hooks: ConsumeHookList
    def __init__(
        self,
        group: str,
        *,
        namesrv: str | Sequence[str] | None = None,
        start: Position = "end",
        auto_commit: bool = True,
        auto_commit_interval: Seconds = 5.0,
        batch: int = 256,
        suspend: Seconds = 15.0,
        share_polls: bool = True,
        max_buffered: int = 1000,
        max_buffered_bytes: int = ...,
        hooks: Sequence[ConsumeHook] = ...,
        trace: bool | str = False,
        on_error: Callable[[MessageQueue, RemotingError], object] | None = None,
        on_event: Callable[[ConsumerEvent], object] | None = None,
        on_assigned: ShareCallback | None = None,
        on_revoked: ShareCallback | None = None,
        **options: Unpack[ClientOptions],
    ) -> None: ...
    @property
    def assignment(self) -> list[MessageQueue]: ...
    @property
    def buffered_bytes(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> None: ...
    def shutdown(self) -> None: ...
    def assign(
        self, what: str | Iterable[MessageQueue], tags: str = "*", *, sql: str | None = None
    ) -> None: ...
    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None: ...
    def unassign(self, topic: str) -> None: ...
    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None: ...
    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None: ...
    def queues(self, topic: str) -> tuple[MessageQueue, ...]: ...
    def poll(self, max_messages: int = 32, timeout: Seconds = 1.0) -> list[MessageExt]: ...
    def __iter__(self) -> Iterator[MessageExt]: ...
    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: str = "*",
        sql: str | None = None,
        suspend: Seconds = 0.0,
        timeout: Seconds | None = None,
    ) -> PullResult[MessageExt]: ...
    def seek(self, position: Position, *, queue: MessageQueue | None = None) -> None: ...
    def position(self, queue: MessageQueue) -> int | None: ...
    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None: ...
    def committed(self, queue: MessageQueue) -> int | None: ...
    def begin_offset(self, queue: MessageQueue) -> int: ...
    def end_offset(self, queue: MessageQueue) -> int: ...
    @property
    def namesrv(self) -> str | Sequence[str] | None: ...
    @namesrv.setter
    def namesrv(self, namesrv: str | Sequence[str] | None) -> None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def healthy(self) -> bool: ...
    @property
    def lag(self) -> dict[MessageQueue, int]: ...
    @property
    def last_success(self) -> float | None: ...
    def ping(self, *, timeout: Seconds = 1.0) -> None: ...

class PushConsumer:
    group: str
    orderly: bool
    broadcast: bool
    hooks: ConsumeHookList
    def __init__(
        self,
        group: str,
        subscriptions: Router | Mapping[str, str] | None = None,
        *,
        handler: Callable[[ConsumedMessage], object] | None = None,
        namesrv: str | Sequence[str] | None = None,
        orderly: bool = False,
        broadcast: bool = False,
        offset_directory: Path | str | None = None,
        start: Position = "end",
        strategy: Strategy | None = None,
        concurrency: int = 64,
        max_reconsume_times: int | None = None,
        dead_letter_on: Sequence[type[Exception]] = ...,
        retry_delays: Mapping[type[Exception], Sequence[Seconds]] | None = None,
        consume_timeout: Seconds = 900.0,
        suspend_current_queue: Seconds = 1.0,
        drop_expired_requests: bool = True,
        pull_batch_size: int = 256,
        suspend: Seconds = 15.0,
        share_polls: bool = True,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        pull_threshold_for_topic: int | None = None,
        pull_threshold_size_for_topic: int | None = None,
        max_buffered_bytes: int = ...,
        consume_concurrently_max_span: int = 2000,
        commit_interval: Seconds = 5.0,
        shutdown_timeout: Seconds = 10.0,
        hooks: Sequence[ConsumeHook] = ...,
        trace: bool | str = False,
        on_event: Callable[[ConsumerEvent], object] | None = None,
        on_assigned: ShareCallback | None = None,
        on_revoked: ShareCallback | None = None,
        **options: Unpack[ClientOptions],
    ) -> None: ...
    @property
    def assignment(self) -> list[MessageQueue]: ...
    @property
    def cached(self) -> dict[str, tuple[int, int]]: ...
    @property
    def dropped_requests(self) -> int: ...
    def subscribe(
        self,
        topic: str,
        tags: str = "*",
        *,
        sql: str | None = None,
        handler: Callable[[ConsumedMessage], object]
        | Callable[[list[ConsumedMessage]], object]
        | TypedHandler[Any]
        | None = None,
        max_batch: int | None = None,
        max_wait: Seconds | None = None,
        payload: Any = None,
    ) -> None: ...
    def unsubscribe(self, topic: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> None: ...
    def run(self, *, timeout: Seconds | None = None, handle_signals: bool = True) -> None: ...
    def shutdown(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def __iter__(self) -> Iterator[ConsumedMessage]: ...
    @property
    def namesrv(self) -> str | Sequence[str] | None: ...
    @namesrv.setter
    def namesrv(self, namesrv: str | Sequence[str] | None) -> None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def healthy(self) -> bool: ...
    @property
    def lag(self) -> dict[MessageQueue, int]: ...
    @property
    def last_success(self) -> float | None: ...
    def ping(self, *, timeout: Seconds = 1.0) -> None: ...
    @overload
    def on(
        self, topic: str, tags: str = "*", *, sql: str | None = None, payload: type[P]
    ) -> PayloadDecorator[P]: ...
    @overload
    def on(
        self, topic: str, tags: str = "*", *, sql: str | None = None, payload: UnionType
    ) -> UnionDecorator: ...
    @overload
    def on(
        self,
        topic: str,
        tags: str = "*",
        *,
        sql: str | None = None,
        max_batch: int,
        max_wait: Seconds | None = None,
    ) -> Callable[[B], B]: ...
    @overload
    def on(self, topic: str, tags: str = "*", *, sql: str | None = None) -> Callable[[H], H]: ...

class TransactionProducer:
    def __init__(self, group: str, *, check: Check, **options: Unpack[ProducerOptions]) -> None: ...
    def transaction(
        self, message: Message, *, queue: MessageQueue | None = None, key: ShardingKey | None = None
    ) -> AbstractContextManager[Transaction]: ...
    def send_in_transaction(
        self,
        message: Message,
        local: LocalTransaction,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
    ) -> TransactionResult: ...
    group: str
    hooks: HookList
    @property
    def timeout(self) -> float: ...
    @timeout.setter
    def timeout(self, value: Seconds) -> None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def buffered_bytes(self) -> int: ...
    @property
    def brokers(self) -> tuple[BrokerState, ...]: ...
    @property
    def healthy(self) -> bool: ...
    @property
    def last_success(self) -> float | None: ...
    def ping(self, *, timeout: Seconds = 1.0) -> None: ...
    @property
    def switches(self) -> Switches: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> None: ...
    def shutdown(self) -> None: ...
    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> SendResult: ...
    def post(
        self, message: Message, *, queue: MessageQueue | None = None, key: ShardingKey | None = None
    ) -> Later[SendResult]: ...
    def flush(self) -> None: ...
    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> None: ...
    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> list[SendResult]: ...
    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: ShardingKey | None = None,
        timeout: Seconds | None = None,
    ) -> MessageExt: ...
    def reply(
        self, request: MessageExt, body: bytes, *, timeout: Seconds | None = None
    ) -> SendResult: ...
    def recall(
        self, topic: str, recall_handle: str | None, *, timeout: Seconds | None = None
    ) -> str: ...
    def queues(self, topic: str) -> tuple[MessageQueue, ...]: ...
