"""What the tests of pages share: small pages of many kinds, and what is written in them."""

import base64
import json
import re

import numpy as np
import torch

import edgewise as ew
import zoo

FEW = {"methods": ["gradient", "occlusion", "random"], "check": False}
NODE_KINDS = {
    "one_node": ("gcn", zoo.graph([], 1)),
    "no_edges": ("gcn", zoo.GRAPHS["no_edges"]()),
    "loops_and_parallel_edges": ("gcn", zoo.GRAPHS["everything"]()),
    "edge_features": ("gine", zoo.GRAPHS["directed"]()),
    "edge_weights": ("gcn_with_weights", zoo.GRAPHS["weighted"]()),
    "one_logit": ("binary", zoo.GRAPHS["parallel"]()),
    "regression": ("regression", zoo.GRAPHS["isolated"]()),
    "no_self_scores": ("pna", zoo.GRAPHS["directed"]()),
}
GRAPH_KINDS = {
    "several_graphs": ("sum_pool", [zoo.GRAPHS["directed"](), zoo.graph([], 1), zoo.GRAPHS["parallel_loops"]()]),
    "one_graph": ("pooled_binary", zoo.GRAPHS["everything"]()),
}
KINDS = [*NODE_KINDS, *GRAPH_KINDS]


def write(path, kind, **options):
    """A page of one of the kinds, about everything in it; its model and data come back too."""
    if kind in NODE_KINDS:
        name, data = NODE_KINDS[kind]
        case, task = zoo.BY_NAME[name], "node"
    else:
        name, data = GRAPH_KINDS[kind]
        case, task = zoo.GRAPH_BY_NAME[name], "graph"
    model = case.build()
    asked = {"mode": case.mode, "task": task, "target": case.target, **FEW, **options}
    ew.write_page(path, model, data, **asked)
    return model, data


def data_of(path):
    """What the page's script reads."""
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def floats(text, *shape):
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<f4").copy()).view(*shape)


def integers(text):
    return np.frombuffer(base64.b64decode(text), "<i4").tolist()


def scores_of(told, record, level, what="scores"):
    """`[methods, layers, items]`."""
    items = integers(record["column" if what == "scores" else "ownNode"])
    depth = 1 if level == "input" else told["layers"]
    return floats(record[what][level], len(told["methods"]), depth, len(items))
