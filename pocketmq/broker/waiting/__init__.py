"""Requests that wait: held pulls, the cost of their filters, and the order of execution."""
