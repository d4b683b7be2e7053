"""Independent pieces of work on threads of one core each, instead of many threads inside every operation."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")

_lock = threading.Lock()
#: By process (a fork inherits the dictionary, but not the threads) and number of threads.
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _pool(size: int) -> ThreadPoolExecutor:
    """Threads whose PyTorch operations stay on one core."""
    key = (os.getpid(), size)
    with _lock:
        if key not in _pools:
            threads = torch.get_num_threads()
            pool = ThreadPoolExecutor(size, thread_name_prefix="sketched-statistic")
            ready, one_by_one = threading.Barrier(size), threading.Lock()

            def restrict(_: int) -> None:
                # The number is a thread's own. Its first use sets it to the default, so use it before setting it ...
                with one_by_one:
                    torch.get_num_threads()
                    torch.set_num_threads(1)
                ready.wait()

            list(pool.map(restrict, range(size)))
            # ... but it is also the default of threads to come, so give that back.
            torch.set_num_threads(threads)
            _pools[key] = pool
        return _pools[key]


def map_threads(function: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call ``function`` on every item without recording gradients, each on a thread of its own if there are several.

    Exceptions come through.
    """
    inference = torch.is_inference_mode_enabled()

    def call(item: Item) -> None:
        # Both modes belong to a thread; tensors made in inference mode may only be written in it.
        with torch.inference_mode(inference), torch.no_grad():
            function(item)

    if len(items) == 1:
        call(items[0])
    else:
        list(_pool(len(items)).map(call, items))
