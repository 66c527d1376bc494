"""Typed JSON bodies, one module per subject; what they share is in `remoting.bodies.base`."""
