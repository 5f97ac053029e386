"""The words that result files and their provenance use. No dependencies: machines that only measure lack the schema's library."""

SCHEMA_VERSION = 1
BACKENDS = ("gpu", "gpu-virtual", "emulator", "model")
STATUS = ("ok", "suspect", "failed", "missing", "skipped")
FACES = ("out", "owned", "none")
MODES = ("graph", "eager", "model")
