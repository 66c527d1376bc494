"""pandas, polars and DuckDB over the files of a broker: python examples/read_store.py STORE [TOPIC]

No Java, no broker: pip install 'pocketmq[arrow]' pandas polars duckdb
"""

import sys

import duckdb

from pocketmq.store.open_store import open_store

directory = sys.argv[1]
topic = sys.argv[2] if len(sys.argv) > 2 else "orders"

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
