"""Streaming reads."""
