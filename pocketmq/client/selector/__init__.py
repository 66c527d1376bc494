"""RIP-63: which queue the next send goes to, and what is known of each broker.

Nothing here does I/O or reads a clock of its own: the clock and the probe are arguments,
so the rules are tested and simulated without a network and without waiting.
"""
