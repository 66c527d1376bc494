"""Says what is wrong with a store, and changes nothing; a broker may have it open.

- `dry_files` shows the files of a store so that nothing reaches the disk;
- `record_scan` finds the records of one commit-log file, and the places where there are none;
- `log_check`, `queue_check` and `index_check` look at the parts of a store;
- `store_check` puts them together, and asks recovery itself whether a broker would start.
"""
