"""Frames and their headers, JSON and binary."""
