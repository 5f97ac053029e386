"""Fused computation-collective operators: one Triton source each, run by the CPU emulator and by GPUs.

Importing this package imports neither Triton nor a GPU: take what you need from the modules
(`kernels.gemv_all_reduce`, `kernels.shmem`, `kernels.symmetric`, `kernels.ops`, `kernels.plan`).
"""
