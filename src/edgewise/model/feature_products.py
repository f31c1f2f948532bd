"""Products of the features with matrices, which the recorded pass has made: whoever needs one again takes it.

The features are the same in every pass, whatever the weights of edges, and wide features times a matrix are most of a pass: on
Cora 1433 numbers a node. What is taken again is what a `Linear` of the model itself made of the very same numbers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import Linear

from edgewise.model.module_tree import modules_of
from edgewise.torch_internals import has_hooks, no_functions

_WORTH_IT = 2**22
"""Multiplications of a product from which on it is kept."""


@dataclass(frozen=True, eq=False)
class _Product:
    """What a linear map made of the features, and torch's count of changes of its numbers and of what it made."""

    module: Any
    versions: list[int]
    made: Tensor
    version: int

    @property
    def holds(self) -> bool:
        """Whether neither the map nor its product has been written into since."""
        return _version(self.made) == self.version and _versions_of(self.module) == self.versions


class FeatureProducts:
    """What linear maps of a model made of its features `[N, in]`, by map.

    >>> import torch
    >>> model, x = nn.Sequential(nn.Linear(2048, 4)), torch.randn(1024, 2048)
    >>> products = FeatureProducts(x)
    >>> with torch.no_grad(), products.kept(model):
    ...     rows = model(x)
    >>> torch.equal(products.linear(x, model[0].weight, model[0].bias), rows)          # taken, not worked out again
    True
    """

    def __init__(self, features: Tensor) -> None:
        self._features = [(features, _version(features))]
        self._found: list[_Product] = []

    @contextmanager
    def kept(self, model: nn.Module) -> Iterator[None]:
        """Keep what maps make of the features while the model runs, where it is worth it."""

        def keep(module: Any, given: tuple[Any, ...], made: Any) -> None:
            with no_functions():  # who numbers the operations of a pass must not count these
                if len(given) == 1 and self._is_features(given[0]) and isinstance(made, Tensor):
                    self._found.append(_Product(module, _versions_of(module), made, _version(made)))

        numbers = self._features[0][0].numel()
        plain: list[Any] = [module for module in modules_of(model) if is_plain_map(module)]
        handles = [module.register_forward_hook(keep) for module in plain if numbers * len(module.weight) >= _WORTH_IT]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def also(self, features: Tensor) -> None:
        """Another tensor of the same numbers."""
        self._features.append((features, _version(features)))

    def linear(self, rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
        """As torch's `linear`: the product that was kept, if there is one of these rows, this matrix and this bias."""
        with no_functions():
            made = self._made(rows, matrix, bias)
        # one operation either way; the model may have kept the product, and write into it
        return functional.linear(rows, matrix, bias) if made is None else made.clone()

    def _made(self, rows: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor | None:
        """The product that was kept, if any."""
        for product in self._found if self._is_features(rows) else []:
            if product.holds and _same(product.module.weight, matrix) and _same(product.module.bias, bias):
                return product.made
        return None

    @contextmanager
    def used(self) -> Iterator[None]:
        """While the model runs again: its maps take what was kept of the features. Only for a model that is ours."""
        maps = {product.module for product in self._found}
        try:
            for module in maps:
                module.forward = self._shortened(module)
            yield
        finally:
            for module in maps:
                module.__dict__.pop("forward", None)

    def _shortened(self, module: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            with no_functions():
                is_ours = len(args) == 1 and not kwargs and self._is_features(args[0])
            if not is_ours:
                return type(module).forward(module, *args, **kwargs)
            return self.linear(args[0], module.weight, module.bias)

        return forward

    def _is_features(self, rows: Any) -> bool:
        return isinstance(rows, Tensor) and any(
            _is_memory_of(rows, features) and _version(features) == version for features, version in self._features
        )


def is_plain_map(module: nn.Module) -> bool:
    """Whether a module is a linear map, and nobody looks into what it gets or gives."""
    if type(module) not in (nn.Linear, Linear) or "forward" in module.__dict__:
        return False
    return not has_hooks(module)


def _is_memory_of(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one piece of memory, read in the same way."""
    if a is b:
        return True
    if type(a) is not Tensor or type(b) is not Tensor or not a.layout == b.layout == torch.strided:
        return False
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    return a.stride() == b.stride() and a.data_ptr() == b.data_ptr()


def _version(tensor: Tensor) -> int:
    """Torch's count of changes; tensors of inference mode have none."""
    return 0 if tensor.is_inference() else tensor._version


def _versions_of(module: nn.Module) -> list[int]:
    return [_version(parameter) for parameter in module.parameters(recurse=False)]


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two matrices (or biases) have the same numbers."""
    if a is None or b is None:
        return a is b
    return a is b or (a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and a.equal(b))
