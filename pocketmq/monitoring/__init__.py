"""Monitoring of a server: metrics to scrape or to push, and whether it is alive and ready.

| module | holds |
|---|---|
| `families` | metrics as plain values, for every exporter |
| `settings` | the settings of the exporters, by their official names |
| `text_format` | families in Prometheus's format (extra `metrics`) |
| `otlp` | families for an OpenTelemetry collector (extra `otlp`) |
| `health` | alive, ready, and why not |
| `http_endpoint` | serves /metrics, /live and /ready |
| `exporter` | starts the configured exporters |
| `pace` | long work alongside a busy event loop |
"""
