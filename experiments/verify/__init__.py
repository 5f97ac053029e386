"""Verification: every case runs the real kernels on random data and compares every element with a float64 reference."""
