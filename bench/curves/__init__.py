"""`python -m bench.curves`: how figures change with the size of something.

`brokers` has the curves of both brokers, `partitions` that of Spark, and `curve` says what one is.
"""
