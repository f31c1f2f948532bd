"""The attack on claims of smallest sets finds what is wrong with a wrong claim, and nothing against a right one."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from places import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks.flip_claims import Attack


@pytest.fixture(scope="module")
def claim():
    """A network, a graph and a node whose smallest flip has two units or more."""
    for seed in range(60):
        torch.manual_seed(seed)
        ends = torch.randint(0, 14, (2, 30))
        ends = ends[:, ends[0] != ends[1]]
        data = Data(x=torch.randn(14, 4), edge_index=torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1))
        model = GCN(4, 8, 2, 3).eval()
        for node in range(14):
            found = ew.counterfactual(model, data, node, undirected=True)
            if found.status == "proven" and found.size == 2:
                return SimpleNamespace(model=model, data=data, node=node, found=found)
    raise AssertionError("no node with a flip of two")


def attack(claim, size, edges):
    torch.manual_seed(0)
    found = Attack(claim.model, claim.data, claim.node, size, 2, undirected=True)
    found.run(edges, 5.0)
    return found


def test_a_right_claim_is_not_contradicted(claim):
    found = attack(claim, claim.found.size, claim.found.edges)
    assert found.contradiction is None
    assert found.tried > found.count  # every single unit, and the claimed set


@pytest.mark.parametrize("said", [None, 3, 4])
def test_a_claim_that_is_too_large_is_contradicted_by_a_smaller_set(claim, said):
    assert attack(claim, said, None).contradiction == claim.found.size


def test_a_claimed_set_that_changes_nothing_is_noticed(claim):
    assert attack(claim, claim.found.size, claim.found.edges[:1]).contradiction == claim.found.size
