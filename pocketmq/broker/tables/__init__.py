"""What a broker remembers: topics, groups, offsets, locks, filters."""
