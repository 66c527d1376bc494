"""Requests that wait: held pulls, their filters, and whose turn is next."""
