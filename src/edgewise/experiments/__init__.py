"""The paper's experiments, one file each; every result is a row that carries its settings, seed, versions and seconds.

`catalogue.py` lists them, `running.py` runs them (`edgewise reproduce`), `store.py` keeps what is done, `reporting/` prints it
beside the published numbers.
"""
