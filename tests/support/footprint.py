"""Everything that a call could leave behind, remembered by identity and by value."""

import random

import numpy as np
import torch
from torch.nn.modules import module as torch_module


def _tensors_of(model, data):
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        yield name, tensor
    for module_name, module in model.named_modules():
        for name, value in vars(module).items():
            for position, part in enumerate(value if isinstance(value, (tuple, list)) else [value]):
                if isinstance(part, torch.Tensor):
                    yield f"{module_name}.{name}[{position}]", part
    for name, value in data.to_dict().items():
        if isinstance(value, torch.Tensor):
            yield f"data.{name}", value


def _version(tensor):
    return None if tensor.is_inference() else tensor._version


def _attributes(model):
    """(module, attribute) → value; dictionaries (parameters, buffers, submodules, hooks) are spread out."""
    found = {}
    for module_name, module in model.named_modules():
        for name, value in vars(module).items():
            found[module_name, name] = value
            if isinstance(value, dict):
                found.update({(module_name, name, key): part for key, part in value.items()})
    return found


def _classes(model):
    kinds = {kind for module in model.modules() for kind in type(module).__mro__ if kind is not object}
    return {(kind, name): value for kind in kinds for name, value in vars(kind).items() if not name.startswith("__")}


def _global_state():
    numpy_state = np.random.get_state()
    return {
        "python random state": random.getstate(),
        "numpy random state": (numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]),
        "torch random state": torch.get_rng_state().tolist(),
        "grad enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "global hooks": [
            list(getattr(torch_module, name))
            for name in vars(torch_module)
            if name.startswith("_global_") and name.endswith("hooks")
        ],
    }


class Footprint:
    """What a model, a graph and the process look like now."""

    def __init__(self, model, data):
        self.model, self.data = model, data
        self.attributes, self.classes, self.globals = _attributes(model), _classes(model), _global_state()
        self.keys = sorted(data.to_dict())
        self.training = [module.training for module in model.modules()]
        self.tensors = {
            name: (
                tensor,
                tensor.detach().clone(),
                _version(tensor),
                tensor.requires_grad,
                tensor.grad,
                _copy(tensor.grad),
                _can_grow(tensor),
            )
            for name, tensor in _tensors_of(model, data)
        }

    def assert_unchanged(self):
        _assert_same_objects(_attributes(self.model), self.attributes, "attributes")
        _assert_same_objects(_classes(self.model), self.classes, "class attributes")
        assert [module.training for module in self.model.modules()] == self.training, "training flags"
        assert sorted(self.data.to_dict()) == self.keys, "keys of the data"
        now = _global_state()
        assert not [name for name in now if now[name] != self.globals[name]], "global state moved"
        tensors = dict(_tensors_of(self.model, self.data))
        assert set(tensors) == set(self.tensors)
        for name, (tensor, value, version, requires_grad, grad, grad_value, can_grow) in self.tensors.items():
            assert tensors[name] is tensor, f"{name} is another tensor"
            assert torch.equal(tensor, value), f"{name} has other values"
            assert _version(tensor) == version, f"{name} was written to"
            assert tensor.requires_grad == requires_grad, f"requires_grad of {name}"
            assert tensor.grad is grad, f"{name}.grad"
            assert grad is None or torch.equal(grad, grad_value), f"values of {name}.grad"
            assert _can_grow(tensor) == can_grow, f"{name} cannot be resized any more"


def _can_grow(tensor):
    """Whether the memory may be resized: torch forbids it for good once `tensor.numpy()` was called."""
    return tensor.untyped_storage().resizable() if tensor.layout == torch.strided else None


def _copy(tensor):
    return None if tensor is None else tensor.clone()


def _assert_same_objects(now, before, what):
    assert set(now) == set(before), f"{what}: {set(now) ^ set(before)}"
    other = [key for key in now if now[key] is not before[key]]
    assert not other, f"{what} were replaced: {other}"


def global_state():
    """Python's, numpy's and torch's random states, and the number of threads."""
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), torch.get_num_threads()
