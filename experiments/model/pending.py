"""Pending events of many messages: a calendar queue whose days are numpy arrays."""

import heapq
from itertools import pairwise
from math import inf

import numpy as np

WINDOWS = 16  # that a day holds: with more, each window searches more events; with fewer, each insertion is split finer


class Pending:
    """Events (time, message). Those of equal times come out in the order in which they were inserted.

    Attributes:
        first: time of the earliest event; inf when there is none.
    """

    def __init__(self) -> None:
        self.first = inf
        self._length = 0.0  # of a day, seconds; speed depends on it, results do not
        self._days: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # after today
        self._order: list[int] = []  # heap of the keys of `_days`
        self._today = -1
        self._times, self._messages = np.empty(0), np.empty(0, dtype=np.int32)  # of today and earlier

    def insert(self, times: np.ndarray, messages: np.ndarray, window: float) -> None:
        """Add events (at least one). `window`: about how many seconds of events will be taken at a time."""
        if not self._length:
            self._length = WINDOWS * window or 1.0
        days = (times / self._length).astype(np.int64)
        order = np.argsort(days, kind="stable")
        days, times, messages = days[order], times[order], messages[order]
        bounds = [0, *(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), len(days)]
        for low, high in pairwise(bounds):
            day = int(days[low])
            part = times[low:high], messages[low:high]
            if day <= self._today:
                self._add(*part)
            elif day in self._days:
                self._days[day].append(part)
            else:
                self._days[day] = [part]
                heapq.heappush(self._order, day)
        self.first = min(self.first, float(times.min()))

    def _add(self, times: np.ndarray, messages: np.ndarray) -> None:
        self._times = np.concatenate([self._times, times])
        self._messages = np.concatenate([self._messages, messages])

    def until(self, before: float, upto: float) -> tuple[np.ndarray, np.ndarray]:
        """Take out events in the order of time: the first one, and others < `before` and <= `upto`, perhaps not all of them."""
        if not len(self._times):
            self._open()
        chosen = ((self._times < before) & (self._times <= upto)) | (self._times == self.first)
        times, messages = self._times[chosen], self._messages[chosen]
        self._times, self._messages = self._times[~chosen], self._messages[~chosen]
        if not len(self._times) and self._order:
            self._open()
        self.first = float(self._times.min()) if len(self._times) else inf
        order = np.argsort(times, kind="stable")
        return times[order], messages[order]

    def put_back(self, times: np.ndarray, messages: np.ndarray) -> None:
        """Undo `until` for its last events, before anything else is inserted."""
        self._add(times, messages)
        self.first = min(self.first, float(times[0]))

    def _open(self) -> None:
        """Make the next day today."""
        self._today = heapq.heappop(self._order)
        parts = self._days.pop(self._today)
        self._add(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
