# SPDX-License-Identifier: GPL-2.0-or-later
"""The workers: processes of this machine, or an existing Dask cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator

from batchflush import paths
from batchflush.errors import BatchflushError, UsageError

CONNECT_SECONDS = 10


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator:
    """A Dask client. scheduler: address of an existing one; workers: how many of our own."""
    # Half a second that no other command needs to wait for.
    import dask
    from distributed import Client, LocalCluster

    folder = paths.BUILD / "crash/dask"
    folder.mkdir(parents=True, exist_ok=True)
    quiet = {
        "temporary-directory": str(folder),
        "distributed.admin.log-format": "%(message)s",
        "distributed.comm.timeouts.connect": CONNECT_SECONDS,
    }
    with dask.config.set(quiet), contextlib.ExitStack() as stack:
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        if scheduler:
            yield stack.enter_context(_existing(Client, scheduler))
            return
        with _ctrl_c_ignored():
            cluster = LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,
                host="127.0.0.1",
                # Any port: another cluster may have the usual one.
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
        stack.enter_context(cluster)
        yield stack.enter_context(Client(cluster))


@contextlib.contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """For the workers that are started: they inherit it, and it is for us to end them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _existing(client_class, address: str):
    try:
        client = client_class(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(
            f"--scheduler={address} does not answer; allowed is the address of a Dask scheduler, "
            "such as tcp://127.0.0.1:8786"
        ) from error
    if not client.ncores():
        client.close()
        raise BatchflushError(f"--scheduler={address} has no workers")
    return client
