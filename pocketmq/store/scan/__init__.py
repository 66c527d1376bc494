"""Reads the files of a store into Arrow, whether a broker has it open, closed it, or was killed.

No Spark here: `pocketmq.spark` makes a Spark data source of it. The modules, from the disk up:

- `segments` maps files, `gather` collects byte ranges out of them, `heads`, `property_table` and
  `alike_texts` take records apart, `columns` makes Arrow arrays of them, `reader` does all that in
  blocks;
- `snapshot` reads the consume queues, `tail` finds records that only the commit log has,
  `topic_table` reads the broker's list of topics;
- `offsets`, `selection`, `partitioning` and `plan` choose what to read and split it;
- `stream_offsets` is where a stream or an export stands, by topic, broker and queue;
- `query` and `stored_messages` offer all that to Python programs (`pocketmq.open_store`).
"""
