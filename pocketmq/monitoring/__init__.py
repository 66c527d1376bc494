"""What a server shows of itself: metrics to scrape or to push, and whether it is alive and ready.

| module | holds |
|---|---|
| `families` | metrics as plain values, which every exporter takes |
| `settings` | the settings of the exporters, by their official names |
| `text_format` | families as Prometheus reads them (extra `metrics`) |
| `otlp` | families as an OpenTelemetry collector gets them (extra `otlp`) |
| `health` | alive, ready, and why not |
| `http_endpoint` | serves /metrics, /live and /ready |
| `exporter` | starts what the settings ask for |
| `pace` | long work beside a busy event loop |
"""
