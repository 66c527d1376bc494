"""Tables that are kept up to date from stored messages, each message exactly once.

There is no Spark in here; `pocketmq export` and `pocketmq.spark.table_sink` use it. The modules:

- `table` is what a table must be able to do, `parquet_table` and `delta_table` are two of them;
- `table_directory` has the files that no commit names yet, `commit` is what a commit says,
  `row_files` writes Parquet files, `evolution` compares columns;
- `body_decoder` decodes bodies by a schema, which `body_schema` or `avro_schema` reads;
- `table_writer` writes rows and dead letters into a table and commits them;
- `message_source` reads what is new in stores, `exports` brings it into a table.
"""
