"""What keeps the log whole: flushing, recovery, cleaning, cutting, following."""
