"""When a send may be answered: flushed, replicated, written."""
