"""Tables that are kept up to date from stored messages, each message exactly once.

Independent of Spark; `pocketmq export` and `pocketmq.spark.table_sink` use it. The modules:

- `table` is the interface of a table, `parquet_table` and `delta_table` implement it;
- `table_directory` has the files that no commit names yet, `commit` is what a commit says,
  `row_files` writes Parquet files, `evolution` compares columns;
- `body_decoder` decodes bodies by a schema, which `body_schema` or `avro_schema` reads;
- `table_writer` writes rows and dead letters into a table and commits them;
- `message_source` reads new messages of stores, `exports` writes them to a table.
"""
