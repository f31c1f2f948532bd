"""Edgewise beside its peers, in one process, on one thread.

python -m benchmarks --quick
"""

import sys
import time

from benchmarks.threads import pin

if __name__ == "__main__":
    begin = time.perf_counter()
    pin()
    from benchmarks.run import main

    sys.exit(main(begin))
