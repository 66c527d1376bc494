"""The contents of pages, collected from the cluster without HTTP: a module for each kind."""
