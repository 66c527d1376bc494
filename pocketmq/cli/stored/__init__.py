"""Commands for the files of a store."""
