"""The experiments of He, Rafiey, Mishne and Wang (KDD 2025), run again beside their published numbers.

Read `registry.py` first: it is the table of experiments, each a module that lists its tasks and runs one of them. A result
is a `Row` (`task.py`) that carries its settings, seed, versions and seconds. `runner.py` gives the tasks to worker processes
and `store.py` keeps what is done, so an interrupted run goes on where it stopped; `report/` prints the rows beside the
published numbers. `command.py` is `edgewise reproduce`. The library `edgewise` never imports this package.
"""
