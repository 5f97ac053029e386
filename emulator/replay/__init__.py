"""Replay mode: all ranks in one process, one memory operation at a time, a seeded adversary, races, hangs, traces."""

from .child import Interpreting
from .options import PERSONALITIES, Decisions, ReplayOptions
from .replay import Replayer, ReplayResult, replay, run
from .report import Report
from .shrink import Shrunk, shrink

__all__ = [
    "PERSONALITIES", "Decisions", "Interpreting", "ReplayOptions", "ReplayResult", "Replayer", "Report", "Shrunk", "replay", "run",
    "shrink",
]  # fmt: skip
