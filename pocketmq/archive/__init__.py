"""Copies of stores in an object store or a shared file system. `pocketmq sync` keeps them up to
date, and scans read them with range requests.

An archive is a directory of a URL (`docs/spark.md` has the layout), one for each broker::

    URL/broker-a/manifest.json                       what is whole; replaced last
    URL/broker-a/log/00000000000000000000-...        a part of the commit log, byte by byte
    URL/broker-a/queues/00000000000000000000-...     the queue entries of that part

Objects never change: a reader with a manifest can rely on the objects that it names. The modules,
from the network up:

- `location` opens a URL, `objects` reads and writes its objects, `errors` has the errors;
- `parts` and `queue_chunks` are the contents of an archive, `sparse_log` the parts of the log
  loaded so far; `archive_files` and `tiered_files` supply bytes to the readers of planned slices;
- `manifest` lists the contents, `queue_index` has the entries of a part; `archived_store` and
  `tiered_store` plan with them, `archives` finds them;
- `sealed` determines which parts of a store can be archived, `sync` uploads them, `verify` reads
  them back.
"""
