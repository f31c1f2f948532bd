"""Explanation methods: one file per idea, and one table of them all (`registry.py`).

`score.py` says what a method returns. Methods that ask a `Score` (ω → the explained number): `gradient.py`,
`occlusion.py`, `gnn_explainer.py`, `shapley.py`, `eig_search.py`, and the yardstick `full` in `registry.py`. Methods that
sum over walks: `walk_sums.py`. Methods that interpret the steps of a lowered program in an arithmetic of their own:
`deep_lift.py`, `degree.py`.
"""
