"""The options of a Producer, for classes that pass them on."""

from __future__ import annotations

from collections.abc import Sequence

from pocketmq.client.observation.send_hooks import AnySendHook
from pocketmq.client.options import ClientOptions
from pocketmq.client.parameters import Milliseconds, Seconds
from pocketmq.client.producer.queue_choice import Selector
from pocketmq.client.selector.filters import QueueFilter
from pocketmq.client.selector.penalty import Selection


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of Producer; its docstring describes them.

    With this type, type checkers find misspelt options of classes that pass `**options` on. A test
    compares this list with Producer's signature.
    """

    namesrv: str | Sequence[str] | None
    timeout: Seconds
    retries: int
    attempt_timeout: Seconds | None
    require_send_ok: bool
    queue_selector: str | Selector
    linger_ms: Milliseconds
    accumulate: bool
    max_buffered_bytes: int
    compression: str | None
    compress_over: int
    compression_level: int
    max_message_size: int
    batch_bytes: int
    max_in_flight: int
    hooks: Sequence[AnySendHook]
    trace: bool | str
    template_topic: str
    template_queues: int
    filters: Sequence[QueueFilter]
    send_latency_enable: bool
    start_detector_enable: bool
    detect_interval_ms: Milliseconds
    detect_timeout_ms: Milliseconds
    latency_max_ms: Sequence[Milliseconds]
    not_available_duration_ms: Sequence[Milliseconds]
    selection: Selection | str
