"""Our client and the official Java client in turn, over loopback, each against both brokers.

`python -m bench --clients`. What a message costs our client without a network, which holds on a
busy machine too, tell `python -m bench.sends` and `python -m bench.consumes`.
"""
