"""The metrics of a broker under the names and labels of RocketMQ 5.3.3 (docs/metrics.md)."""
