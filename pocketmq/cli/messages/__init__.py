"""Commands that send and show messages."""
