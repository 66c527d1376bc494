"""Mends a damaged store, so that a broker starts and serves what is left of it.

`patches` says what has to stand in the commit log instead of the damage, `tables` mends the
broker's tables, and `store_repair` does it all in an order in which it can be interrupted.
"""
