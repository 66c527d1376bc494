"""A rolling restart under load: what was acknowledged, what arrived, how often and in which order.

Brokers, producers and consumers are processes of their own; `python -m bench.rolling --help`.
"""
