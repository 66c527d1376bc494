"""`python -m bench.full`: every figure that has an aim, beside the official broker.

`workload` says what a workload is and what it works with; the other modules have the workloads, one
family each, and `catalogue` lists them all.
"""
