"""Queues of a store that is read without its broker."""
