"""RIP-63: chooses the queue of the next send by the state of the brokers.

No module here does I/O or reads the system's clock: the clock and the probe are arguments, so that
the rules can be tested and simulated without a network and without waiting.
"""
