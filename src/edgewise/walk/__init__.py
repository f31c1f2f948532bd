"""Walks: which source, through whom, in which layer.

`recording.py` reads a program off the model, `chain.py` cuts it into states. `calls.py` knows each call by itself (its blocks
come from `build.py` and are kept by `blocks.py`), `first_call.py` the one that reads the features, `between.py` what happens at
nodes from call to call; `network.py` puts them together, and steps back from the `front.py` of prefixes that `ends.py` starts.

Searches give what is in `found.py`: `exact.py` (with the boxes of `bounds.py`, and `best_so_far.py`), `dag.py`, `amp.py`,
`neurons.py`, `exhaustive.py`. `posing.py` has the networks of a question, `asking.py` is `ew.walks`, `relevance.py` scores
walks that are given.
"""
