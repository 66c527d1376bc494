"""`python -m bench`: our broker against the official one, in turn, by the same load generator."""
