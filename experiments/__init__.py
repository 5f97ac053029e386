"""Experiments: cases as data, verification, measurement, tuning, studies, and the recorded reference measurements."""
