"""The broker stores what producers send and serves it to consumers.

`pocketmq.broker.broker.Broker` starts and stops everything. The modules:

- `components` wires the parts together; `background` runs timers and saves tables; `config` and
  `live_config` have the settings;
- `processors` answers requests, one module per request family;
- `acknowledge` decides when a send is answered; `waiting` holds pulls until messages arrive;
- `inner_message` stores messages through put hooks, such as those of `delayed` and `transactions`;
- `pop` is POP consumption; `replication` and `controller` copy the log to other brokers;
- `tables` has topics, groups and offsets, which are saved in files, and the connected clients;
- `registration` registers the broker with the name servers;
- `statistics`, `metrics`, `runtime_info` and `health` have its figures.
"""
