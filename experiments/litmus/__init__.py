"""Litmus tests of the protocol's operations: what the memory model allows, what the emulator shows, what GPUs show."""
