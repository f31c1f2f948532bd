"""A slow twin of every fast way: the model itself, run again and again with hooks of our own on its messages."""

from contextlib import ExitStack

import torch
from torch_geometric.nn import MessagePassing


class HookedTwin:
    """A model whose calls come one after the other, with the same columns each; loops that a layer adds keep 1."""

    def __init__(self, model, *inputs):
        self.model, self.inputs = model, inputs
        self.columns = next(part.size(1) for part in inputs if part.dim() == 2 and part.dtype == torch.long)
        self.calls = 0
        self.truth = self.run(None)

    def run(self, weight):
        """The model's output under ω `[calls, columns]`."""
        self.calls = 0

        def weighted(module, arguments, messages):
            place, self.calls = self.calls, self.calls + 1
            if weight is None:
                return messages
            row = weight[place]
            row = torch.cat([row, row.new_ones(len(messages) - len(row))])
            return messages * row.view(-1, *[1] * (messages.dim() - 1))

        with ExitStack() as stack, torch.no_grad():
            for module in self.model.modules():
                if isinstance(module, MessagePassing):
                    hook = module.register_message_forward_hook(weighted)
                    stack.callback(hook.remove)
            return self.model(*self.inputs)

    def losses(self, level):
        """`[columns, rows, classes]` of the output, without each column; with a first axis for the calls at layer level."""
        calls = self.calls
        rows = [[call] for call in range(calls)] if level == "layer" else [list(range(calls))]
        found = []
        for row in rows:
            for column in range(self.columns):
                weight = torch.ones(calls, self.columns, dtype=self.truth.dtype)
                weight[row, column] = 0
                found.append(self.truth - self.run(weight))
        lost = torch.stack(found).view(len(rows), self.columns, *self.truth.shape)
        return lost if level == "layer" else lost[0]

    def feature_losses(self):
        """`[N, F, rows, classes]`: what the output loses without one feature of one node; features are the first input."""
        x, *rest = self.inputs
        found = []
        for place in range(x.numel()):
            less = x.clone()
            less.view(-1)[place] = 0
            with torch.no_grad():
                found.append(self.truth - self.model(less, *rest))
        return torch.stack(found).view(*x.shape, *self.truth.shape)
