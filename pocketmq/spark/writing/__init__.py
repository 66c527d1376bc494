"""Writes, in batches and streams."""
