"""What the pages show, gathered from the cluster without HTTP: a module for each kind of page."""
