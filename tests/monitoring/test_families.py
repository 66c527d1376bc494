"""Metrics as values, and the text that Prometheus gets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest, parser
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from pocketmq.monitoring.families import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    OVERFLOW,
    Distribution,
    Family,
    Histogram,
    dropped_series,
    limited,
)
from pocketmq.monitoring.text_format import chunks, exported_name

BOUNDS = (1, 10, 100)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(0, 10**15) | st.floats(0, 1e15)


@st.composite
def families(draw: st.DrawFn) -> Family:
    kind = draw(st.sampled_from((COUNTER, GAUGE, HISTOGRAM)))
    names = draw(st.sampled_from(((), ("topic",), ("topic", "consumer_group"))))
    distributions = st.builds(
        Distribution, st.tuples(*[st.integers(0, 1000)] * (len(BOUNDS) + 1)), numbers
    )
    values = distributions if kind == HISTOGRAM else numbers
    points = draw(
        st.lists(
            st.tuples(st.tuples(*[texts] * len(names)), values),
            max_size=4,
            unique_by=lambda point: point[0],
        )
    )
    name = "rocketmq_things" + ("_total" if kind == COUNTER else "")
    unit = draw(st.sampled_from(("", "bytes")))
    bounds = BOUNDS if kind == HISTOGRAM else ()
    return Family(name, kind, draw(texts), names, points, unit, bounds)


def text(found: Iterable[Family], **common: str) -> str:
    return b"".join(chunks(found, common)).decode()


@given(families(), st.dictionaries(st.sampled_from(("cluster", "node_id")), texts))
def test_a_client_of_prometheus_reads_what_was_written(
    family: Family, common: dict[str, str]
) -> None:
    (read,) = parser.text_string_to_metric_families(text([family], **common))
    assert read.type == family.kind
    expected = {}
    name = exported_name(family)
    for values, value in family.points:
        labels = {**common, **dict(zip(family.labels, values, strict=True))}
        if not isinstance(value, Distribution):
            expected[name, frozenset(labels.items())] = float(value)
            continue
        total = 0
        for bound, count in zip((*BOUNDS, math.inf), value.buckets, strict=True):
            total += count
            le = "+Inf" if bound == math.inf else f"{float(bound)}"
            expected[f"{name}_bucket", frozenset({**labels, "le": le}.items())] = total
        expected[f"{name}_count", frozenset(labels.items())] = total
        expected[f"{name}_sum", frozenset(labels.items())] = float(value.total)
    assert {
        (sample.name, frozenset(sample.labels.items())): sample.value for sample in read.samples
    } == expected


@pytest.mark.parametrize(
    ("name", "kind", "unit", "exported"),
    [
        ("rocketmq_messages_in_total", COUNTER, "", "rocketmq_messages_in_total"),
        (
            "rocketmq_consumer_lag_latency",
            GAUGE,
            "milliseconds",
            "rocketmq_consumer_lag_latency_milliseconds",
        ),
        ("pocketmq_puts_refused", COUNTER, "", "pocketmq_puts_refused_total"),
    ],
)
def test_names_have_unit_and_total(name: str, kind: str, unit: str, exported: str) -> None:
    assert exported_name(Family(name, kind, "", (), [], unit)) == exported


def test_many_points_come_in_several_chunks_with_one_head() -> None:
    points = [((f"T{number}",), number) for number in range(1000)]
    family = Family("rocketmq_things", GAUGE, "help", ("topic",), points)
    written = list(chunks([family], {}))
    assert len(written) > 3
    assert b"".join(written).count(b"# TYPE") == 1


def test_a_histogram_counts_each_value_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0, 1, 1.5, 10, 101):
        histogram.add(("a",), value)
    assert histogram.points() == [(("a",), Distribution((2, 2, 0, 1), 113.5))]
    histogram.forget(("a",))
    assert histogram.points() == []


def test_series_above_the_limit_become_one() -> None:
    points = [((f"T{number}",), 1) for number in range(10)]
    family = Family("rocketmq_things", COUNTER, "", ("topic",), points)
    (cut,) = limited([family], 4)
    assert cut.labels == ("topic", OVERFLOW)
    assert cut.points == [(("T0", ""), 1), (("T1", ""), 1), (("T2", ""), 1), (("", "true"), 7)]


def test_histograms_above_the_limit_are_added_and_gauges_left_out() -> None:
    points = [((f"T{number}",), Distribution((1, 2), 3.0)) for number in range(4)]
    histogram = Family("rocketmq_things", HISTOGRAM, "", ("topic",), points, bounds=(1,))
    (cut,) = limited([histogram], 2)
    assert cut.points[1] == (("", "true"), Distribution((3, 6), 9.0))
    gauge = Family("rocketmq_level", GAUGE, "", ("topic",), [(("a",), 1), (("b",), 2)])
    (kept,) = limited([gauge], 2)
    assert kept is gauge
    (cut,) = limited([gauge._replace(points=[*gauge.points, (("c",), 3)])], 2)
    assert (cut.labels, cut.points, cut.dropped) == (("topic",), [(("c",), 3), (("b",), 2)], 1)


def test_what_a_family_left_out_before_is_part_of_the_overflow() -> None:
    points = [((f"T{number}",), 1) for number in range(4)]
    family = Family("rocketmq_things", COUNTER, "", ("topic",), points, dropped=6, rest=60)
    (cut,) = limited([family], 4)
    assert cut.points[-1] == (("", "true"), 61)
    assert cut.dropped == 7
    dropped = dropped_series([cut, family._replace(name="whole", dropped=0)])
    assert dropped.points == [(("rocketmq_things",), 7)]


@given(st.lists(families(), max_size=3), st.dictionaries(st.sampled_from(("cluster", "le")), texts))
def test_the_text_is_that_of_the_official_client(
    found: list[Family], common: dict[str, str]
) -> None:
    for family in found:
        assert text([family], **common) == official_text(family, common)


class One(Collector):
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        yield self._metric


def official_text(family: Family, common: dict[str, str]) -> str:
    name = exported_name(family)
    metric = Metric(name.removesuffix("_total"), family.help, family.kind)
    borders = [f"{float(bound)}" for bound in family.bounds] + ["+Inf"]
    for values, value in family.points:
        labels = {**common, **dict(zip(family.labels, values, strict=True))}
        if isinstance(value, Distribution):
            for border, count in zip(borders, accumulate(value.buckets), strict=True):
                metric.samples.append(Sample(f"{name}_bucket", {**labels, "le": border}, count))
            metric.samples.append(Sample(f"{name}_count", labels, value.observations))
            metric.samples.append(Sample(f"{name}_sum", labels, value.total))
        else:
            metric.samples.append(Sample(name, labels, value))
    return generate_latest(One(metric)).decode()
