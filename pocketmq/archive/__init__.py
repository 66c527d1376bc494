"""Copies of stores in an object store or a shared file system, which `pocketmq sync` keeps up to
date and scans read by range requests.

An archive is a directory of a URL (`docs/spark.md` has the layout), one for each broker::

    URL/broker-a/manifest.json                       what is whole; replaced last
    URL/broker-a/log/00000000000000000000-...        a part of the commit log, byte by byte
    URL/broker-a/queues/00000000000000000000-...     the queue entries of that part

Objects never change: a reader that has a manifest can rely on what it names. The modules, from the
network up:

- `location` opens a URL, `objects` reads and writes what is there, `errors` says what went wrong;
- `parts` and `queue_chunks` are what an archive consists of, `sparse_log` the log as far as it was
  needed; `archive_files` and `tiered_files` are what readers of planned slices take bytes from;
- `manifest` is the list of what is there, `queue_index` the entries of a part; `archived_store` and
  `tiered_store` plan with them, `archives` finds them;
- `sealed` finds out what of a store can be archived, `sync` uploads it, `verify` reads it again.
"""
