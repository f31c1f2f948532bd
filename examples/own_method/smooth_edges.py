"""SmoothGrad (Smilkov et al., 2017) for edges: the mean gradient while all edge weights are disturbed a little."""

import torch


def smooth_gradient(score, *, level, seed, samples=8, spread=0.1):
    """The mean of ∂z/∂ω at `samples` random ω around 1, with standard deviation `spread`."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros_like(score.ones())
    for _ in range(samples):
        noise = torch.randn(total.shape, generator=generator).to(total)
        weight = (1 + spread * noise).requires_grad_()
        total += torch.autograd.grad(score(weight).sum(), weight)[0] / samples
    return total if level == "layer" else total.sum(dim=0)
