"""The broker stores what producers send and serves it to consumers.

`broker.broker.Broker` starts and stops everything. The rooms:

- `components` wires the parts together, `tables` holds what the broker knows, `background` runs
  timers and saves tables; `config` and `live_config` are the settings;
- `processors` answers requests, one module per request family;
- `hold_service` holds pulls until messages arrive;
- `inner_message` stores messages through put hooks: `delayed` and `transactions` have such hooks;
- `topic_config`, `subscription_group`, `consumer_offset`, `consumer_filter` are tables in files;
  `consumer_groups`, `producer_groups`, `queue_locks` are tables that live with the connections;
- `unserved_topics` refuses topics that only official brokers serve;
- `registration` tells the name servers about the broker; `statistics`, `put_times` and
  `runtime_info` are its figures.
"""
