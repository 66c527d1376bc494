"""pandas, polars and DuckDB over a broker's files: python examples/read_store.py STORE TOPIC"""

import sys

import duckdb

from pocketmq import open_store

directory, topic = sys.argv[1:]

with open_store(directory) as store:
    print("topics:", *store.topics)

    frame = store.to_pandas(topic=topic, columns=["tags", "body", "storeTimestamp"])
    print("pandas:", len(frame), "messages, the last one stored at", frame["storeTimestamp"].max())

    paid = store.to_polars(topic=topic, tags="paid", columns=["queueId", "queueOffset"])
    print("polars:", paid.height, "paid in", paid["queueId"].n_unique(), "queues")

    # Batches are read while DuckDB asks for them, so the store may be larger than memory.
    messages = store.batches(topic=topic, columns=["tags", "body"])
    counts = "SELECT tags, count(*), sum(octet_length(body)) FROM messages GROUP BY tags ORDER BY 1"
    for tag, count, size in duckdb.execute(counts).fetchall():
        print("DuckDB:", tag, count, "messages,", size, "bytes")
