"""Settings files of servers, and what they expose."""
