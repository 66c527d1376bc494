"""The main job end to end on real records: what `pocketmq demo` and `make demo` run.

`flights` is the data set, `cluster` the server processes, `ledger` what was acknowledged
against what was pulled, `traffic` the producer and the consumer, `spark_report` the SQL over
the stores, `story` the order in which all of it happens.
"""
