"""TLS for servers and clients."""
