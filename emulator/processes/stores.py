"""Stores under way: what a work-group has stored and other threads need not see yet.

A store may arrive at any time after it was issued and in any order with others, except that overlapping ones keep their order.
It must have arrived when something that orders it says so: see `memory.py`.
"""

from collections.abc import Callable

import numpy as np

from ..backend import Scope
from ..interpreter import raw_store


class Store:
    """One store instruction, or a part of one.

    Attributes:
        addresses, values: 1-D, one element a lane.
        low, high: bytes [low, high) hold all of them.
        owner: rank whose heap is written, -1 for this process's own memory.
        barriers: block barriers that its work-group had passed.
        lead: done by thread 0, which also does the scalar atomics.
        counts: whether its arrival counts as one (parts of one instruction count once).
        published: released at GPU scope: part of whatever a work-group of this rank releases at system scope later.
        fenced: scope of a fence that its thread has executed since; a block barrier then orders it for the others.
        unsent: an asynchronous store nobody has waited for; no barrier, fence or release covers it.
    """

    __slots__ = (
        "addresses", "barriers", "counts", "fenced", "high", "lead", "low", "owner", "published", "unsent", "values",
    )  # fmt: skip

    def __init__(
        self,
        addresses: np.ndarray,
        values: np.ndarray,
        low: int,
        high: int,
        owner: int,
        barriers: int,
        lead: bool,
        unsent: bool,
    ):
        self.addresses, self.values, self.low, self.high, self.owner = addresses, values, low, high, owner
        self.barriers, self.lead, self.unsent = barriers, lead, unsent
        self.counts = True
        self.published = False
        self.fenced: Scope | None = None


class Pending:
    """The stores of one work-group that are under way, oldest first. `arrived` is called with each store once it is in memory."""

    def __init__(self, arrived: Callable[[Store], None]):
        self.stores: list[Store] = []
        self._arrived = arrived

    def add(self, store: Store, parts: int) -> None:
        """Take a store, split into up to `parts` that may arrive separately."""
        n = len(store.addresses)
        if parts <= 1 or n < 2 * parts:
            self.stores.append(store)
            return
        step = -(-n // parts)
        for start in range(0, n, step):
            addresses = store.addresses[start : start + step]
            low, high = int(addresses.min()), int(addresses.max()) + store.values.itemsize
            part = Store(
                addresses,
                store.values[start : start + step],
                low,
                high,
                store.owner,
                store.barriers,
                store.lead,
                store.unsent,
            )
            part.counts = start == 0
            self.stores.append(part)

    def _arrive(self, store: Store) -> None:
        raw_store(store.addresses, store.values)
        self._arrived(store)

    def deliver(self, index: int) -> None:
        """Let one store arrive: number `index`, or an earlier one if those overlap."""
        stores = self.stores
        store = stores[index]
        for earlier in range(index):
            if stores[earlier].low < store.high and store.low < stores[earlier].high:
                index, store = earlier, stores[earlier]
                break
        del stores[index]
        self._arrive(store)

    def settle(self, low: int, high: int) -> None:
        """Let every store that touches bytes [low, high) arrive, and what must come before it: a work-group sees its own stores."""
        stores = self.stores
        found = False
        for index in range(len(stores) - 1, -1, -1):
            store = stores[index]
            if store.low < high and low < store.high:
                low, high, found = min(low, store.low), max(high, store.high), True
        if found:
            self.force(lambda store: store.low < high and low < store.high)

    def force(self, which: Callable[[Store], bool]) -> None:
        """Let all stores for which `which` holds arrive, except behind an overlapping one that stays under way."""
        kept: list[Store] = []
        for store in self.stores:
            if which(store) and not any(k.low < store.high and store.low < k.high for k in kept):
                self._arrive(store)
            else:
                kept.append(store)
        self.stores[:] = kept
