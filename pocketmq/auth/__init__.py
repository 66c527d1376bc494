"""Who may do what: users and access lists as ACL 2.0 of RocketMQ 5.3.3, at both servers.

`users`, `policies`, `permissions`, `signature` and `guard` do no I/O. `store` keeps users and
access lists in a file. `guard` is what a dispatcher asks before each request. docs/security.md has
the rules, and where they differ from the reference.
"""
