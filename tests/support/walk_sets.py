"""Four walks worked out by hand, for tests of pictures and exports."""

import torch

from edgewise import Walk, WalkSet
from edgewise.results.explanation import Settings

FOUND = (Walk((0, 1, 3), 4.0), Walk((2, 1, 3), -2.0), Walk((3, 3, 3), 1.0), Walk((0, 2, 3), 0.5))


def walk_set(walks=FOUND, **changes):
    given = {"exact": True, "upper_bound": 0.25, "index": 3, "target": 1, "value": 2.5, "num_nodes": 4}
    settings = Settings({"sign": "magnitude", "of": "logit", "task": "node", "mode": "multiclass"})
    edges = torch.tensor([[0, 1, 2, 2, 0], [1, 3, 1, 3, 2]])
    return WalkSet(tuple(walks), settings=settings, edge_index=edges, **(given | changes))
