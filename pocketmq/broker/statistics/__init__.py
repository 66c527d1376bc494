"""Counts of messages and requests, by topic and group."""
