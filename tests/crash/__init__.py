"""Whether a broker, a name server and clients that are killed keep their promises.

    python -m tests.crash --rounds 1000 --seed 7

| module | what it does |
|---|---|
| broker_process | starts real servers quickly, kills, stops and halts them |
| ledger | what was sent, acknowledged and received, and when the broker ended |
| traffic | requests of every kind that writes, many in flight, until the broker is gone |
| deletions | topics that are made, used, deleted and made again |
| shelf | reads what a broker serves: queues and the index |
| verdict | compares what is served with what was acknowledged |
| campaign | rounds of all this, on one store after the other |
| lies | brokers with a deliberate bug, which the campaign must find |
| mixed | rounds of faults of all servers, with clients of every kind (`--mixed`) |
| clients | those clients: producers and consumers over remoting and gRPC |
| history | judges what the consumers got |
| pops | consumers that pop from a broker that is killed; a command of its own |

`test_restarts` and `test_producer_outage` also kill name servers and clients, and look at the whole
from the clients' side.
"""
