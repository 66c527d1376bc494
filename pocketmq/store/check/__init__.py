"""Reports what is wrong with a store without changing it; a broker may have it open.

- `dry_files` shows the files of a store so that nothing reaches the disk;
- `record_scan` finds the records of one commit-log file, and the gaps between them;
- `log_check`, `queue_check` and `index_check` look at the parts of a store;
- `store_check` combines them, and runs recovery dry to see whether a broker would start.
"""
