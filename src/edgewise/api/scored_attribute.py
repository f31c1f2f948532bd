"""Scores of another attribute of nodes than `x`: a question in which it stands in the place of `x`.

The data that are asked about have the attribute as `x`, and the model gets it back under its own name (`AttributeForward`). So
whatever gives scores of `x` gives scores of it.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, Dataset

from edgewise.algorithms.feature_copies import with_features
from edgewise.arrays import plain_index
from edgewise.errors import InputError
from edgewise.graph.inputs import is_stand_in
from edgewise.model.call import call_model
from edgewise.model.link_call import LinkForward
from edgewise.question import PosedQuestion, pose

_KEPT = "own_x"
"""Under which name the data keep their `x` meanwhile."""
_CHANGES = (1.0, -10.0, 10.0)


@dataclass(frozen=True)
class AttributeForward:
    """Calls the model as it would be called, with the attribute under its own name again."""

    attribute: str
    forward: Any = None
    """The user's own way to call the model."""

    def __call__(self, model: nn.Module, data: Data, *pairs: Tensor) -> Any:
        """What the model returns."""
        own = copy.copy(data)
        own[self.attribute] = own.x
        del own["x"]
        if _KEPT in own:
            own.x = own[_KEPT]
            del own[_KEPT]
        if pairs:
            return LinkForward(self.forward)(model, own)
        return call_model(model, own) if self.forward is None else self.forward(model, own)


def moved(data: Any, attribute: str) -> Any:
    """The data with an attribute in the place of `x`: of one graph, or of each in a list."""
    if isinstance(data, Batch):
        data = data.to_data_list()
    if isinstance(data, (Sequence, Dataset)) and not isinstance(data, (str, bytes)):
        return [moved(data[place], attribute) for place in range(len(data))]
    if not isinstance(data, Data):
        raise InputError(
            f"`attribute` must be 'x' for {type(data).__name__}, got {attribute!r}. Use Data, which may have others, or "
            f"leave it out."
        )
    if attribute not in floating_attributes(data):
        known = (
            " or ".join(f"attribute={name!r}" for name in floating_attributes(data)) or "data with such an attribute"
        )
        raise InputError(
            f"`attribute` must name floating-point numbers of each node, got {attribute!r}, which is none in these data. Use "
            f"{known}."
        )
    own = copy.copy(data)
    values = own[attribute]
    for key in (attribute, "feature_names"):
        if key in own:
            del own[key]
    if own.get("x") is not None:
        own[_KEPT] = own.x
    own.x = values
    return own


def floating_attributes(data: Data) -> list[str]:
    """The names of what can be scored number by number, with a row for each node."""
    count = next((len(data[key]) for key in ("x", "pos", "z") if isinstance(data.get(key), Tensor)), data.num_nodes)
    known = [(key, value) for key, value in data.to_dict().items() if isinstance(value, Tensor)]
    rows = [(key, value) for key, value in known if value.is_floating_point() and value.dim() and len(value) == count]
    return [key for key, _ in rows if key not in ("y", "edge_attr", "edge_weight", "edge_label")]


def asked_about(question: PosedQuestion, attribute: str) -> PosedQuestion:
    """The same question, about data that have an attribute in the place of `x`."""
    listed, asked = plain_index(question.index), question.asked
    return pose(
        question.subject.user_model,
        moved(question.data, attribute),
        listed[0] if question.single else listed,
        target=question.target.column.cpu(),
        task=question.task,
        mode=question.target.mode,
        of=question.target.of,
        output=asked.output,
        forward=AttributeForward(attribute, asked.forward),
        device=asked.device,
        without_itself=asked.without_itself,
    )


def refuse_unread(question: PosedQuestion, attribute: str) -> None:
    """Refuse scores that are all 0 because the model does not read the attribute: its output stays, whatever the numbers."""
    subject, draw = question.subject, torch.Generator().manual_seed(0)
    runs = ((question.call, question.copies(torch.tensor([0]))[0].data), (subject.call, subject.example))
    with torch.no_grad(), question.borrowed():
        for call, data in runs:
            before = call(data)
            for size in _CHANGES:
                noise = torch.randn(data.x.shape, generator=draw).to(data.x)
                if not torch.equal(call(with_features(data, data.x + size * noise)), before):
                    return
    raise InputError(
        f"The model's output does not depend on data.{attribute}, so all of its scores would be 0. "
        f"{_instead(question, attribute)}"
    )


def refuse_stand_in(question: PosedQuestion) -> None:
    """Refuse scores of features that the data do not have."""
    if is_stand_in(question.graphs[0].x):
        raise InputError(f"`data.x` must be there to be scored, got None. {_instead(question, 'x')}")


def _instead(question: PosedQuestion, attribute: str) -> str:
    """What to score instead, as a sentence."""
    data = question.data if isinstance(question.data, Data) else question.data[0]
    others = [name for name in floating_attributes(data) if name not in (attribute, "x", _KEPT)]
    if isinstance(question.asked.forward, AttributeForward) or not others:
        return "Use ew.explain(...) for edges."
    return f"Use attribute={others[0]!r}, if the model reads that."
