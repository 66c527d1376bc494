"""Requests of operators and their tools: mqadmin, dashboards, exporters, `pocketmq.Admin`.

- `topic` and `group` create, change, list and delete; `offset` resets and clones consumer offsets;
- `settings` reads and changes the broker's configuration, `cleaning` removes files and queues that
  are no longer used;
- `stats` shows the figures of the broker, `consume_stats` the progress of groups, `connections` the
  connected clients;
- `replication` serves slaves and shows the copies of the log, `controller_mode` serves controllers.
"""
