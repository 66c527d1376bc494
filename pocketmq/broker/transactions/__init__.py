"""Transactions: messages that are stored now and become readable when their producer commits.

A *half message* lies in RMQ_SYS_TRANS_HALF_TOPIC until its transaction is ended: a commit stores it
again where it was sent to. Commit and rollback are written into RMQ_SYS_TRANS_OP_HALF_TOPIC as an
*op*, a list of offsets of the half queue whose transactions are ended. Checks find open
transactions by comparing the half queue with the ops, and ask the producer group. The files are
those of the official broker, so either broker continues where the other one stopped.
"""
