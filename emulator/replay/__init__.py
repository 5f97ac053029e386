"""Replay mode: all ranks in one process, one memory operation at a time, a seeded adversary, races, hangs, traces."""

from .options import PERSONALITIES, Decisions, ReplayOptions
from .replay import Replayer, ReplayResult, replay
from .report import Report
from .shrink import Shrunk, shrink

__all__ = [
    "PERSONALITIES", "Decisions", "ReplayOptions", "ReplayResult", "Replayer", "Report", "Shrunk", "replay", "shrink",
]  # fmt: skip
