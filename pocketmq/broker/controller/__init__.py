"""A broker that is a member of a group whose roles a controller gives out.

The modules without asyncio hold the rules: `ha_frames` (bytes), `identity_file`, `sync_state_set`,
`slave_link` and `master_link` (the two ends of a connection), and `replica`, which puts them
together: one state machine, with a log as its only neighbour. `tests/broker/controller/simulation`
runs groups of it against lost messages, partitions and power cuts.
"""
