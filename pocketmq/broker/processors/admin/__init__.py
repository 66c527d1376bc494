"""Requests of operators and their tools: mqadmin, dashboards, exporters, `pocketmq.Admin`.

- `topic` and `group` create, change, list and delete; `offset` resets and copies consumer offsets;
- `settings` reads and changes the broker's configuration, `cleaning` removes files and queues that
  are no longer needed;
- `stats` shows the broker's own figures, `consume_stats` the progress of groups, `connections` the
  connected clients.
"""
