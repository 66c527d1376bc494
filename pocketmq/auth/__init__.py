"""Who may do what: users and access lists as ACL 2.0 of RocketMQ 5.3.3, in both servers.

`users`, `policies`, `permissions`, `signature` and `guard` do no I/O. `store` keeps users and
access lists in a file. Dispatchers ask `guard` before each request. docs/security.md has the rules,
and the differences from the reference.
"""
