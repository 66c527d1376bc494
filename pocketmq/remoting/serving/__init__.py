"""The server's side of connections."""
