"""The published numbers as they were made: the authors' random streams, trainings, explainer, flips and averages, as coded.

Lines are those of github.com/he-jesse/explaining-gnn-explanations at commit 14ddf70; each step says which it follows. Nothing
is copied and nothing is fitted. Read `rebuilt.py` (networks that come out the same), `trainings.py` (networks that cannot),
`layer_explainer.py`, `scripted_flips.py`, then `measures.py` (averages) and `experiments.py` (tasks and rows).
"""
