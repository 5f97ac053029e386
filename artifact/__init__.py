"""The artifact-evaluation layer: claims and their verdicts, configuration, provenance, result schema, statistics, workflow, report."""

__version__ = "0.1.0"
