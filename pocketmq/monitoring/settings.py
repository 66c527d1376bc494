"""The settings of metrics and health, by their official names, and their meaning.

Brokers and name servers have the same ones. Reference: BrokerConfig, MetricsExporterType.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Protocol

from pocketmq.remoting.settings.properties_file import Check, ConfigError, ConfigErrors

NO_PORT: Final = -1

_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HEADER_NAME: Final = re.compile(r"[!-9;-~]+")


class ExporterType(IntEnum):
    """How metrics are exported."""

    DISABLE = 0
    OTLP_GRPC = 1
    PROM = 2
    LOG = 3


class MonitoringSettings(Protocol):
    """The part of a server's configuration for metrics and health.

    - `metrics_exporter_type`: DISABLE, OTLP_GRPC, PROM or LOG; or 0, 1, 2 or 3;
    - `metrics_prom_exporter_port`, `metrics_prom_exporter_host`: where Prometheus scrapes them. 0:
      any free port; no host: the address that the server listens on;
    - `metrics_grpc_exporter_target`: `http://host:port` of an OpenTelemetry collector;
    - `metrics_grpc_exporter_header`: `name:value,name:value` for it;
    - `metric_grpc_exporter_time_out_in_mills`, `metric_grpc_exporter_interval_in_mills`,
      `metric_logging_exporter_interval_in_mills`: milliseconds;
    - `metrics_label`: `name:value,name:value`, labels of all series;
    - `metrics_in_delta`: a collector gets differences instead of sums;
    - `metrics_otel_cardinality_limit`: the most series of a metric;
    - `health_port`: serves /live and /ready, even without metrics; 0: any free port, -1: none.
      RocketMQ does not have this setting.
    """

    metrics_exporter_type: str
    metrics_prom_exporter_port: int
    metrics_prom_exporter_host: str
    metrics_grpc_exporter_target: str
    metrics_grpc_exporter_header: str
    metric_grpc_exporter_time_out_in_mills: int
    metric_grpc_exporter_interval_in_mills: int
    metric_logging_exporter_interval_in_mills: int
    metrics_label: str
    metrics_in_delta: bool
    metrics_otel_cardinality_limit: int
    health_port: int
    bind_address: str


def exporter_type(text: str) -> ExporterType:
    """Read metricsExporterType. Raises ValueError."""
    word = text.strip()
    for kind in ExporterType:
        if word.upper() == kind.name or word == str(kind.value):
            return kind
    raise ValueError(
        f"metricsExporterType = {word!r}: must be DISABLE, OTLP_GRPC, PROM or LOG (or 0, 1, 2, 3)"
    )


def pairs(text: str) -> dict[str, str]:
    """Read `name:value,name:value`. Raises ValueError."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = part.partition(":")
        if not colon or not name.strip():
            # Without the text, whose values may be secret.
            raise ValueError("must be name:value, joined by commas")
        found[name.strip()] = value.strip()
    return found


def _check_type(text: str) -> str | None:
    try:
        exporter_type(text)
    except ValueError as error:
        return str(error)
    return None


def _check_pairs(key: str, name: re.Pattern[str]) -> Check:
    def check(text: str) -> str | None:
        try:
            wrong = [each for each in pairs(text) if not name.fullmatch(each)]
        except ValueError as error:
            return f"{key}: {error}"
        return f"{key}: {wrong[0]!r} cannot be a name" if wrong else None

    return check


def check_collector(key: str) -> Check:
    """Return the check of a setting that is the address of a collector, or empty."""

    def check(text: str) -> str | None:
        if not text or re.fullmatch(r"https?://[^/\s:]+(:\d{1,5})?/?", text):
            return None
        return f"{key} = {text!r}: must be http://host:port or https://host:port"

    return check


#: Checks of single properties: each returns what is wrong with a value.
CHECKS: Final[Mapping[str, Check]] = {
    "metricsExporterType": _check_type,
    "metricsLabel": _check_pairs("metricsLabel", _LABEL_NAME),
    "metricsGrpcExporterHeader": _check_pairs("metricsGrpcExporterHeader", _HEADER_NAME),
    "metricsGrpcExporterTarget": check_collector("metricsGrpcExporterTarget"),
}

#: Fields of both configurations. None can be changed while a server runs.
PROPERTIES: Final = frozenset(
    {
        "metricsPromExporterPort",
        "metricsPromExporterHost",
        "metricGrpcExporterTimeOutInMills",
        "metricGrpcExporterIntervalInMills",
        "metricLoggingExporterIntervalInMills",
        "metricsInDelta",
        "metricsOtelCardinalityLimit",
        "healthPort",
        *CHECKS,
    }
)


def check_target(settings: MonitoringSettings, warnings: list[str]) -> None:
    """Check combinations of settings. Raises ConfigErrors."""
    kind = exporter_type(settings.metrics_exporter_type)
    if kind is ExporterType.OTLP_GRPC and not settings.metrics_grpc_exporter_target:
        key = "metricsGrpcExporterTarget"
        text = f"metricsExporterType=OTLP_GRPC needs {key}, such as http://127.0.0.1:4317"
        raise ConfigErrors([ConfigError(key, "", "set", text=text)], warnings)
