"""Answers to requests, one module per request family; each class registers its own methods."""
