"""The settings of metrics and health."""

from __future__ import annotations

import pytest

from pocketmq.broker.config import load_broker_config
from pocketmq.monitoring.settings import ExporterType, exporter_type, pairs
from pocketmq.namesrv.config import load_namesrv_config
from pocketmq.remoting.settings.properties_file import ConfigErrors


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("DISABLE", ExporterType.DISABLE),
        ("prom", ExporterType.PROM),
        ("2", ExporterType.PROM),
        (" OTLP_GRPC ", ExporterType.OTLP_GRPC),
        ("3", ExporterType.LOG),
    ],
)
def test_exporters_have_names_and_numbers(text: str, kind: ExporterType) -> None:
    assert exporter_type(text) is kind


@pytest.mark.parametrize("load", [load_broker_config, load_namesrv_config])
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("metricsExporterType=JMX", "DISABLE, OTLP_GRPC, PROM or LOG"),
        ("metricsExporterType=OTLP_GRPC", "needs metricsGrpcExporterTarget"),
        ("metricsGrpcExporterTarget=collector:4317", "http://host:port"),
        ("metricsLabel=zone", "name:value"),
        ("metricsLabel=a-b:c", "'a-b' cannot be a name"),
        ("metricsPromExporterPort=70000", "65535"),
        ("healthPort=-2", "-1"),
        ("metricsOtelCardinalityLimit=1", "2"),
    ],
)
def test_what_is_wrong_is_said(load: object, line: str, says: str) -> None:
    with pytest.raises(ConfigErrors, match=says.replace(".", r"\.")):
        load(line)  # type: ignore[operator]


def test_a_header_that_is_wrong_is_not_shown() -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_broker_config("metricsGrpcExporterHeader=Bearer-secret")
    assert "Bearer" not in str(caught.value)


def test_pairs_are_split_at_commas_and_the_first_colon() -> None:
    assert pairs("zone:a, url:http://x:1,") == {"zone": "a", "url": "http://x:1"}
