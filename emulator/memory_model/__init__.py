"""The GPU memory model as an operational machine: histories, vector clocks, scopes. Knows neither Triton nor ranks' programs."""

from .buffers import Buffer, Message, Where
from .memory import MODES, Chooser, Memory
from .order import Scope, Sem, Thread
from .races import Access, Conflict, Detector

__all__ = [
    "MODES",
    "Access",
    "Buffer",
    "Chooser",
    "Conflict",
    "Detector",
    "Memory",
    "Message",
    "Scope",
    "Sem",
    "Thread",
    "Where",
]
