"""Orders of arrays, beside torch's own."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from edgewise.arrays import group_order


@given(st.integers(0, 40), st.sampled_from([1, 3, 2**16 - 1, 2**16, 2**16 + 1, 2**33]), st.integers(0, 10**6))
def test_the_order_of_groups_is_a_stable_sort(size, groups, seed):
    drawn = torch.Generator().manual_seed(seed)
    few = torch.randint(groups, (3,), generator=drawn)  # so that groups repeat
    group = few[torch.randint(3, (size,), generator=drawn)]
    assert torch.equal(group_order(group, groups), group.argsort(stable=True))
