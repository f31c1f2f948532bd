"""One thread for everything.

`torch.set_num_threads` does not govern the BLAS that NumPy loads, so the variables come first: this file imports neither.
"""

import os

POOLS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "NUMBA")


def pin() -> None:
    """Call it before anything imports numpy or torch."""
    for pool in POOLS:
        os.environ[f"{pool}_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
