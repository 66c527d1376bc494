"""RIP-63 measured: round-robin, the reference's rules and ours over the same troubled brokers.

`python -m bench.selector` simulates under a clock of its own (exact, seconds of work); with
`--processes` it runs real brokers and stops, kills and delays them.
"""
