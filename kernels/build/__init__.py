"""Ahead-of-time build: every kernel compiled for GPUs that are not there, its resources counted and its assembly linted.

`python -m kernels.build --out results.csv` compiles what `catalog` lists for what `targets` lists, each kernel in a child
process (`worker`), reads registers, spills and shared memory from the binaries (`resources`), works out the theoretical
occupancy (`occupancy`), and checks that the generated assembly keeps the protocol's ordering rules (`lint`).
"""
