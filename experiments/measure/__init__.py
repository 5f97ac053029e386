"""Measurement: every arm of a case in CUDA graphs, interleaved in random order, checked, with the limit of the machine beside it."""

microbench_operator = "microbenchmark"  # the name under which microbenchmarks stand in the rows
