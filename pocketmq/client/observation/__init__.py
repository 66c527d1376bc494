"""Metrics, traces, hooks and log fields of clients."""
