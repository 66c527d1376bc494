"""One module per request family: each class registers its handlers and calls the tables."""
