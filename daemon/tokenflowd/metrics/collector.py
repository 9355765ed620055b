"""The one collector: everything in a scrape is of one snapshot."""

import math
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tokenflow.counters import Histogram
from tokenflowd.metrics import table
from tokenflowd.metrics.facts import Facts

_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class _Snapshot(Collector):
    """Prometheus' view of one `Facts`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        for metric in table.METRICS:
            if metric.is_per_scheduler and self._facts.schedulers:
                family = _family(metric, (*metric.labels, table.SCHEDULER_LABEL))
                for facts in self._facts.schedulers:
                    assert facts.telemetry is not None
                    _add(family, metric, facts, (str(facts.telemetry.scheduler_index),))
            else:
                family = _family(metric, metric.labels)
                _add(family, metric, self._facts, ())
            yield family


class _OneScrape(CollectorRegistry):
    """A registry that asks its collector once, and not when it is registered too."""

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        yield from self._collector.collect()


def render(facts: Facts, accept: str = "") -> tuple[bytes, str]:
    """The text and its content type: OpenMetrics where the `Accept` header asks for it, else Prometheus' own."""
    encoder, content_type = choose_encoder(accept)
    return encoder(_OneScrape(_Snapshot(facts))), content_type


def _add(family: _Family, metric: table.Metric, facts: Facts, last_labels: tuple[str, ...]) -> None:
    for labels, value in metric.read(facts):
        if isinstance(value, Histogram):
            assert isinstance(family, HistogramMetricFamily), f"{metric.name} is no histogram"
            buckets = [(_bound(bound), total) for bound, total in value.cumulative()]
            family.add_metric((*labels, *last_labels), buckets, value.sum)
        else:
            assert not isinstance(family, HistogramMetricFamily), f"{metric.name} is a histogram"
            family.add_metric((*labels, *last_labels), value)


def _bound(bound: float) -> str:
    return "+Inf" if bound == math.inf else repr(bound)


def _family(metric: table.Metric, labels: tuple[str, ...]) -> _Family:
    name = table.PREFIX + metric.name
    make: Callable[..., _Family]
    match metric.kind:
        case table.Kind.COUNTER:
            make = CounterMetricFamily
        case table.Kind.HISTOGRAM:
            make = HistogramMetricFamily
        case _:
            make = GaugeMetricFamily
    return make(name, metric.help, labels=labels)
