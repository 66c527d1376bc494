"""Answers made in one piece, and Batch-Protocol."""
