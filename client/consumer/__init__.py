"""Receiving."""
