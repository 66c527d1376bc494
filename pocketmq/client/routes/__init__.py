"""Name servers and the routes they give."""
