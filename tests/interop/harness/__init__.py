"""Real servers and clients for tests and benchmarks: ours, and the official Java and Go ones."""
