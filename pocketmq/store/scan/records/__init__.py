"""Columns of messages from the bytes of the log."""
