"""The main use case from end to end with real records, for `pocketmq demo` and `make demo`.

`flights` is the data set, `cluster` the server processes, `ledger` compares acknowledged with
pulled messages, `traffic` has the producer and the consumer, `spark_report` the SQL over the
stores, `story` the sequence of steps.
"""
