"""Repairs a damaged store, so that a broker starts and serves what is left of it.

`patches` decides what replaces damage in the commit log, `tables` repairs the
broker's tables, and `store_repair` does it all in an order in which it can be interrupted.
"""
