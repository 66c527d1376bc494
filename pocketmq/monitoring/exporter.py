"""Starts the configured monitoring of a server: its metrics, and its health pages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from pocketmq._extras import require
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.monitoring.families import Family, dropped_series, limited
from pocketmq.monitoring.health import Answer, Health
from pocketmq.monitoring.pace import paced
from pocketmq.monitoring.settings import (
    NO_PORT,
    ExporterType,
    MonitoringSettings,
    exporter_type,
    pairs,
)
from pocketmq.remoting.serving.stop_steps import StopSteps

if TYPE_CHECKING:
    from pocketmq.monitoring.http_endpoint import HttpEndpoint, MakePage, Page
    from pocketmq.monitoring.otlp import OtlpExporter

log = LimitedLog(logging.getLogger(__name__))
series_log = logging.getLogger("pocketmq.metrics")

METRICS: Final = "/metrics"
LIVE: Final = "/live"
READY: Final = "/ready"
SCOPE_LABEL: Final = "otel_scope_name"

MOST_SCRAPES: Final = 2  # at once
COLLECT_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 3.0
FINISH_SECONDS: Final = 5.0  # of a stop, for the last export

#: Returns all metrics of a server, on its event loop, with pauses.
Collect = Callable[[], Awaitable[list[Family]]]


class Monitoring:
    """Metrics and health of one server.

    Args:
        settings: of the server.
        labels: of all series: cluster, node_type and node_id.
        scope: the name of the meter.
        probe_seconds: how long the event loop may take to answer a probe.

    Attributes:
        collect: None until the server has metrics to show.
        health: its state.
    """

    def __init__(
        self,
        settings: MonitoringSettings,
        *,
        labels: Mapping[str, str],
        scope: str,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        self.health = Health()
        self.collect: Collect | None = None
        self._settings = settings
        self._kind = exporter_type(settings.metrics_exporter_type)
        self._scope = scope
        self._probe_seconds = probe_seconds
        self._labels = {**labels, **pairs(settings.metrics_label)}
        if settings.metrics_in_delta:
            self._labels["aggregation"] = "delta"
        self._endpoints: dict[str, HttpEndpoint] = {}
        self._scrapes = threading.Semaphore(MOST_SCRAPES)
        self._sending = asyncio.Lock()
        self._send: Callable[[list[Family]], None] | None = None

    @property
    def is_measuring(self) -> bool:
        """Whether metrics are exported, so that the server has to record them."""
        return self._kind is not ExporterType.DISABLE

    @property
    def metrics_port(self) -> int | None:
        """The port for scraping, if any."""
        return self._port("metricsPromExporterPort")

    @property
    def health_port(self) -> int | None:
        """The port with only the health pages, if any."""
        return self._port("healthPort")

    def _port(self, key: str) -> int | None:
        endpoint = self._endpoints.get(key)
        return None if endpoint is None else endpoint.port

    def start(self, stack: StopSteps) -> None:
        """Serve and send until `stack` is closed.

        Raises:
            PortInUse, CannotListen: for a configured address.
            MissingExtra: the packages that the exporter needs are not installed.
        """
        settings = self._settings
        if self._kind in (ExporterType.PROM, ExporterType.LOG):
            require("metrics", f"metricsExporterType={self._kind.name}")
        if self._kind is ExporterType.PROM:
            self._listen(stack, "metricsPromExporterPort", settings.metrics_prom_exporter_port)
        if settings.health_port != NO_PORT:
            self._listen(stack, "healthPort", settings.health_port)
        if self._kind is ExporterType.OTLP_GRPC:
            exporter = self._otlp()
            stack.callback(exporter.close)
            seconds = settings.metric_grpc_exporter_interval_in_mills / 1000
            self._repeat(stack, seconds, lambda families: self._push(exporter, families))
        elif self._kind is ExporterType.LOG:
            seconds = settings.metric_logging_exporter_interval_in_mills / 1000
            self._repeat(stack, seconds, self._write)

    async def finish(self) -> None:
        """Send the values since the last export, and stop collecting. Idempotent."""
        if self._send is not None and self.collect is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINISH_SECONDS):
                    await self._send_all(self._send)
        self.collect = None

    # --- served ---------------------------------------------------------------------------------

    def _listen(self, stack: StopSteps, key: str, port: int) -> None:
        # Only now: the module of the standard library takes 20 ms of a start.
        from pocketmq.monitoring.http_endpoint import HttpEndpoint

        host = self._settings.metrics_prom_exporter_host or self._settings.bind_address
        pages: dict[str, MakePage] = {LIVE: self._live, READY: self._ready}
        if key == "metricsPromExporterPort":
            pages[METRICS] = self._metrics
        self._loop = asyncio.get_running_loop()
        endpoint = HttpEndpoint(host, port, pages, key=key)
        endpoint.start()
        stack.push_step(endpoint.stop)
        self._endpoints[key] = endpoint

    def _live(self) -> Page:
        async def turn() -> Answer:
            return Answer(True)

        # A start may block the event loop for minutes, while it recovers the store.
        return self._page(Answer(True) if self.health.is_starting else self._asked(turn))

    def _ready(self) -> Page:
        async def ready() -> Answer:
            return self.health.ready()

        return self._page(self.health.ready() if self.health.is_starting else self._asked(ready))

    def _asked(self, make: Callable[[], Awaitable[Answer]]) -> Answer:
        from pocketmq.monitoring.http_endpoint import on_loop

        try:
            answer: Answer = on_loop(self._loop, make, self._probe_seconds)
        except TimeoutError as error:
            return Answer(False, (str(error),))
        return answer

    @staticmethod
    def _page(answer: Answer) -> Page:
        from pocketmq.monitoring.http_endpoint import plain

        return plain(answer.text(), 200 if answer.well else 503)

    def _metrics(self) -> Page:
        from pocketmq.monitoring.http_endpoint import Page, on_loop, plain
        from pocketmq.monitoring.text_format import CONTENT_TYPE, chunks

        if self.health.is_starting or self.collect is None:
            return plain("the server is starting\n", 503)
        if not self._scrapes.acquire(blocking=False):
            return plain(f"{MOST_SCRAPES} scrapes are in progress\n", 503)
        with contextlib.ExitStack() as stack:
            stack.callback(self._scrapes.release)
            try:
                families: list[Family] = on_loop(self._loop, self.collect, COLLECT_SECONDS)
            except TimeoutError as error:
                return plain(f"{error}\n", 503)
            text = chunks(self._limited(families), {**self._labels, SCOPE_LABEL: self._scope})
            return Page(200, CONTENT_TYPE, text, stack.pop_all().close)

    # --- sent -----------------------------------------------------------------------------------

    def _otlp(self) -> OtlpExporter:
        require("otlp", "metricsExporterType=OTLP_GRPC")
        from pocketmq.monitoring.otlp import OtlpExporter

        settings = self._settings
        return OtlpExporter(
            settings.metrics_grpc_exporter_target,
            headers=pairs(settings.metrics_grpc_exporter_header),
            timeout=settings.metric_grpc_exporter_time_out_in_mills / 1000,
            common=self._labels,
            scope=self._scope,
            delta=settings.metrics_in_delta,
            began=time.time_ns(),
        )

    def _push(self, exporter: OtlpExporter, families: list[Family]) -> None:
        if not exporter.export(families, time.time_ns()):
            target = self._settings.metrics_grpc_exporter_target
            log.warning("the collector at %s did not take the metrics", target)

    def _write(self, families: list[Family]) -> None:
        from pocketmq.monitoring.text_format import chunks

        for chunk in paced(chunks(families, self._labels)):
            for line in chunk.decode().splitlines():
                if not line.startswith("#"):
                    series_log.info("%s", line)

    def _repeat(
        self,
        stack: StopSteps,
        seconds: float,
        send: Callable[[list[Family]], None],
    ) -> None:
        """Send all families from a thread, every `seconds`."""
        self._send = send

        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                await self._send_all(send)

        stack.callback(KeptTask(repeat, "metrics export").cancel)

    async def _send_all(self, send: Callable[[list[Family]], None]) -> None:
        # One at a time: differences must be sent in order.
        async with self._sending:
            if self.collect is None:
                return
            try:
                families = self._limited(await self.collect())
                await asyncio.to_thread(send, families)
            except Exception as error:
                log.exception("exporting metrics failed: %s", error, cause=type(error).__name__)

    def _limited(self, families: list[Family]) -> list[Family]:
        most = self._settings.metrics_otel_cardinality_limit
        kept = list(limited(families, most))
        for family in kept:
            if family.dropped:
                log.warning(
                    "metric %s: %d series are not exported (metricsOtelCardinalityLimit is %d)",
                    *(family.name, family.dropped, most),
                    cause=("series", family.name),
                )
        return [*kept, dropped_series(kept)]
