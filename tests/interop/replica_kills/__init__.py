"""Kills a master or its slave again and again: what was acknowledged has to be on both."""
