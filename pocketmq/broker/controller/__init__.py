"""A broker that is a member of a controller group: a controller assigns the roles.

The modules without asyncio have the rules: `ha_frames` (bytes), `identity_file`, `sync_state_set`,
`slave_link` and `master_link` (the two ends of a connection), and `replica`, a state machine that
combines them and uses only an `epoch_log`. `group_replication` drives it: `group_member` and
`controller_client` talk to the controllers, `group_server` and `group_client` to the other members,
and `role_services` starts and stops the services of each role.
"""
