"""Writes a copy of a store, also while a broker writes to it, that a broker opens as after a crash.

`copied_files` copies single files and runs of files, `log_copy` the commit log, and
`store_snapshot` all parts in an order in which they fit together.
"""
