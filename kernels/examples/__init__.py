"""Programs to read and to run: small models built from `kernels.modules`, and a kernel of its own on the device API."""
