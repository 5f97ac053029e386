"""Kernels in other people's idioms, none of which uses this project's device API."""
