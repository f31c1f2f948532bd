"""Nested arguments as flat lists and back: torch's own functions for that.

A `TreeSpec` is the shape that is left when the leaves are taken out:

>>> leaves, form = tree_flatten(((1, 2), {"dim": 3}))
>>> leaves
[1, 2, 3]
>>> tree_unflatten([10, 20, 30], form)
((10, 20), {'dim': 30})
>>> tree_leaves({"a": [4, 5]})
[4, 5]
"""

from edgewise.torch_internals import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

__all__ = ["TreeSpec", "tree_flatten", "tree_leaves", "tree_unflatten"]
