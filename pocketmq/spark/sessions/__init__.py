"""Sessions with the data source, and what they need."""
