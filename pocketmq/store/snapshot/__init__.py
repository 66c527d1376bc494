"""Writes a copy of a store, also while a broker writes to it, that a broker opens as after a crash.

`log_copy` copies the commit log, `queue_copy` the consume queues up to the checkpoint, and
`store_snapshot` all parts in an order in which they fit together.
"""
