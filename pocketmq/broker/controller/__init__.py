"""A broker that is a member of a group whose roles a controller gives out.

The modules without asyncio hold the rules: `ha_frames` (bytes), `identity_file`, `sync_state_set`,
`slave_link` and `master_link` (the two ends of a connection), and `replica`, which puts them
together: one state machine, with an `epoch_log` as its only neighbour. `group_replication` drives
it: `group_member` and `controller_client` speak with the controllers, `group_server` and
`group_client` with the other members, and `role_services` changes what the broker does besides.
"""
