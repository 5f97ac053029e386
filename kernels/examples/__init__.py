"""Small models built from `kernels.modules`, to read and to run: `torchrun --nproc-per-node 4 -m kernels.examples.decoder --check`."""
