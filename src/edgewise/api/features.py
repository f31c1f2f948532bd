"""features(): which features of which nodes, the front door for feature scores."""

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.algorithms.class_activation import activation_scores
from edgewise.algorithms.feature_copies import FeatureCopies
from edgewise.algorithms.feature_loss_audit import STEP_SENTENCE, feature_losses_hold, missed_by_gradients
from edgewise.algorithms.feature_methods import FEATURE_METHODS, FeatureEngine, FeatureMethod, feature_rows
from edgewise.algorithms.feature_program import FeatureProgram
from edgewise.algorithms.link_feature_program import LinkFeatureProgram
from edgewise.algorithms.typed_feature_copies import TypedFeatureCopies
from edgewise.api.scored_attribute import AttributeForward, asked_about, moved, refuse_stand_in, refuse_unread
from edgewise.arguments import did_you_mean, one_of, whole_number
from edgewise.contract import checked
from edgewise.errors import InputError, KinkWarning, SettingError
from edgewise.graph.sample import sampled_numbers
from edgewise.progress import progress_bar
from edgewise.question import PosedQuestion, pose
from edgewise.question.memory import blocks, estimated_blocks, is_whole, read_batch_size, read_memory, room
from edgewise.results.entries import Entries
from edgewise.results.explanation import Settings
from edgewise.results.feature_factors import FeatureFactors, FeatureRows, joined_rows
from edgewise.results.feature_scores import FeatureScores, FeatureSet

log = logging.getLogger("edgewise")
_KEPT = 4
"""How often the features of a block are held at once: the copies, what the model gets, gradients, sums of them."""
_AUDITED = 9
"""How often the features are held while gradients by them are compared with differences, in their precision and in float64."""
_COPIED = 2**21
"""Numbers of a table of features up to which results have a copy of their own."""


@checked
def features(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    method: str = "gradient_x_input",
    attribute: str = "x",
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    without_itself: bool = False,
    top: int | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    device: Any = None,
    seed: int = 0,
    progress: bool = False,
    stopped: str | None = None,
    **settings: Any,
) -> FeatureScores | FeatureSet:
    """Which features made the model predict what it predicts: a signed score for every feature of every node.

    Args:
        model: A `torch.nn.Module` with PyG message-passing layers; it is run in eval mode and left as it was.
        data: A `torch_geometric.data.Data` or a `HeteroData` (scores are then by node type); for `task="graph"` also a list of
            them or a `Dataset`.
        index: The node or graph: an int gives `FeatureScores`; a sequence, tensor, slice or mask a `FeatureSet`; `None` all.
            For `task="link"` a pair `(u, v)`, a list of pairs, or a tensor `[2, T]`.
        method: `"gradient"`, `"gradient_x_input"`, `"occlusion"` (one feature of one node set to 0), `"integrated_gradients"`
            (`steps=50`), and for scores of nodes alone `"cam"` or `"grad_cam"`.
        attribute: What is scored: `"x"`, or other floating-point numbers of each node that the model reads, such as `"pos"`.
        target: The class, one or one for each index; `None` is the predicted one, `"all"` every class of each target in turn.
        task: `"node"`, `"graph"` or `"link"`.
        mode: `"multiclass"`, `"binary"` (one logit), `"multilabel"` (a logit for each column), `"regression"`, or `None`
            to infer multiclass or binary from the width of the output; labels that contradict that are refused.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off its last operation.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        without_itself: For links: take the columns u → v and v → u out of the graph of each pair first.
        top: Keep only the strongest scores of each target.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
        batch_size: Targets in a block, instead of `memory`.
        device: Where to compute, such as `"cuda"`; the model and the data stay where they are.
        seed: Written into the settings; no method draws random numbers.
        progress: Show a progress bar.
        stopped: `"keep"` takes autograd's number where `detach` or `no_grad` in `forward` stops gradients; `None` refuses it.
        **settings: The method's own settings: `steps=50`.

    Returns:
        `FeatureScores` for one int (or one graph), otherwise a `FeatureSet`.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(2, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.copy_(torch.tensor([[2.0, 5.0]]))
    >>> data = Data(x=torch.tensor([[1.0, 0.0], [-3.0, 1.0], [0.0, 0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> why = features(conv, data, index=2, target=1)          # z = 2·1 + 2·(−3) + 5·1
    >>> why.scores
    tensor([[ 2.,  0.],
            [-6.,  5.],
            [ 0.,  0.]])
    >>> why.top(1)
    [(5.0, 1, 1)]
    """
    own: dict[str, Any] = {"seed": seed, "top": top, "progress": progress, "stopped": stopped}
    sizes: dict[str, Any] = {"memory": memory, "batch_size": batch_size}
    _check(method, settings, seed, top, stopped, memory, batch_size)
    if attribute != "x":
        data, forward = moved(data, attribute), AttributeForward(attribute, forward)
    asked: dict[str, Any] = {"target": target, "task": task, "mode": mode, "of": of, "output": output}
    question = pose(model, data, index, **asked, forward=forward, device=device, without_itself=without_itself)
    return features_of_question(question, method=method, attribute=attribute, **own, **sizes, **settings)


@checked
def features_of_question(
    question: PosedQuestion,
    *,
    method: str = "gradient_x_input",
    attribute: str = "x",
    top: int | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool = False,
    stopped: str | None = None,
    **settings: Any,
) -> FeatureScores | FeatureSet:
    """The same for a question that is posed already."""
    chosen, own = _check(method, settings, seed, top, stopped, memory, batch_size)
    question = _about(question, attribute, chosen)
    audited = chosen.differentiates and memory is not None and is_whole(question)
    budget = room(question, memory, passes=_AUDITED if audited else 0)
    with torch.inference_mode(mode=False), question.borrowed():
        typed = TypedFeatureCopies(question, budget) if question.types is not None else None
        through = typed or FeatureCopies(question, budget)
        skips = typed is not None or chosen.scores_nodes or through.reads_attributes
        lowered: FeatureProgram | LinkFeatureProgram | None = None
        if not skips:
            lowered = FeatureProgram.proved(question, budget)
            if lowered is None and chosen.differentiates:
                lowered = LinkFeatureProgram.proved(question, budget, through)
        engine: FeatureEngine = lowered or through
        if chosen.differentiates and stopped != "keep":
            question.check_slopes()
            if lowered is None or lowered.front is not None:  # else the program, which is the function, was compared
                question.check_feature_slopes()
                _warn_of_kink(question, chosen)
        scored = partial(_scored, question, chosen, own, top, budget, batch_size, progress=progress)
        parts, way = scored(engine)
        if isinstance(lowered, FeatureProgram) and chosen.name == "occlusion":
            rows = joined_rows([kind[0] for kind in parts if kind[0] is not None])
            if isinstance(rows, Entries) and not feature_losses_hold(question, rows, lowered.x.size(1)):
                log.debug("losses by the program are not those of the model, which is run itself")
                parts, way = scored(through)
        missed = ""
        if stopped != "keep":  # what stops is known to be missing
            missed = _missed(question, chosen, engine, own, parts if top is None else None)
    story = {
        **own,
        **question.notes,
        "seed": seed,
        "top": top,
        "way": way,
        "stopped": stopped,
        "adds_up_to": "nothing in particular: behind a step gradients are 0" if missed else chosen.adds_up_to,
        "attribute": attribute,
    }
    found = _answer(question, chosen, parts, story, typed)
    return found[0] if question.single else found


def _about(question: PosedQuestion, attribute: str, method: FeatureMethod) -> PosedQuestion:
    """The question with what is scored in the place of `x`, checked."""
    if attribute != "x" and not isinstance(question.asked.forward, AttributeForward):
        question = asked_about(question, attribute)
    _check_features(question, method)
    unproved = method.changes_features and question.locality == "confirmed"
    return question.on_whole_graphs() if unproved or question.trace.picks_rows == "features" else question


def _answer(
    question: PosedQuestion,
    method: FeatureMethod,
    parts: list[list[FeatureRows | None]],
    story: dict[str, Any],
    typed: TypedFeatureCopies | None,
) -> FeatureSet:
    """The blocks as one set; refused if they are 0 because nobody reads what is scored."""
    if typed is not None:
        sizes = torch.tensor([[table.size, table.num_attributes] for table in typed.tables])
        found = _assembled(question, method, parts, story, None)
        return replace(found, types=typed.tables, sizes=sizes, num_features=1, num_attributes=1)
    found = _assembled(question, method, parts, story, _names(question))
    if _is_zero(found):
        refuse_unread(question, story["attribute"])
    return found


def _is_zero(found: FeatureSet) -> bool:
    """Whether no node has a score."""
    rows = found.features
    return rows is not None and not bool((rows.left if isinstance(rows, FeatureFactors) else rows.score).any())


def _warn_of_kink(question: PosedQuestion, method: FeatureMethod) -> None:
    """Gradients at a kink of the model are no slopes; products with features of 0 are right all the same."""
    kink = question.feature_kink() if method.name == "gradient" or question.is_at_kink else None
    if kink is not None and (method.name == "gradient" or not kink.products_hold):
        warnings.warn(kink.sentence, KinkWarning, stacklevel=2)


def _missed(
    question: PosedQuestion, method: FeatureMethod, engine: FeatureEngine, own: Mapping[str, Any],
    parts: list[list[FeatureRows | None]] | None,
) -> str:  # fmt: skip
    """Warn of scores by gradients that miss what features bring by a step; what they miss, in words."""
    if not method.differentiates or method.scores_nodes:
        return ""
    found = None if parts is None else [_joined(kind) for kind in zip(*parts, strict=True)]
    missed = missed_by_gradients(question, engine, method, int(own.get("steps", 1)), found)
    if missed:
        warnings.warn(STEP_SENTENCE.format(missed=missed), KinkWarning, stacklevel=2)
    return missed


def _scored(
    question: PosedQuestion, method: FeatureMethod, own: dict[str, Any], top: int | None, budget: int,
    batch_size: int | None, engine: FeatureEngine, *, progress: bool,
) -> tuple[list[list[FeatureRows | None]], str]:  # fmt: skip
    """The scores of all targets, block by block, and how the model was run."""
    parts: list[list[FeatureRows | None]] = []
    ways = dict[str, None]()
    of_model = isinstance(engine, (FeatureCopies, TypedFeatureCopies))
    parted = (estimated_blocks if of_model else blocks)(question, max(budget // _KEPT, 1), batch_size)
    with progress_bar(progress, len(question.index), f"features by {method.name}") as advance:
        for positions in parted:
            if method.scores_nodes:
                parts.append([activation_scores(question, method.name, positions, top)])
            else:
                parts.append(feature_rows(engine, method, positions, top, own))
            ways[engine.way] = None
            log.debug("features by %s of %d targets: %s", method.name, len(positions), engine.way)
            advance(len(positions))
    return parts, ", ".join(ways)


def _check(
    method: Any, settings: Mapping[str, Any], seed: Any, top: Any, stopped: Any, memory: Any, batch_size: Any
) -> tuple[FeatureMethod, dict[str, Any]]:
    """The method and its settings; everything is checked before any work."""
    chosen = FEATURE_METHODS[one_of("method", method, FEATURE_METHODS)]
    for name in settings:
        if name not in chosen.settings:
            known = ", ".join(chosen.settings) or "none"
            raise SettingError(
                f"{method} has no setting {name!r}; its settings are: {known}.{did_you_mean(name, list(chosen.settings))}"
            )
    own = {**chosen.settings, **settings}
    if "steps" in own:
        own["steps"] = whole_number("steps", own["steps"], at_least=1, such_as=50)
    read_memory(memory)
    read_batch_size(batch_size)
    whole_number("seed", seed)
    whole_number("top", top, at_least=1, or_none="for all features")
    if stopped is not None:
        one_of("stopped", stopped, ("keep",), also="or None")
    return chosen, own


def _check_features(question: PosedQuestion, method: FeatureMethod) -> None:
    """Features that can be moved: numbers, not names of categories, of nodes, graphs and links."""
    if question.types is not None:
        if method.scores_nodes:
            raise InputError(
                f"{method.name} reads the maps of one last layer, and a model of a HeteroData has one for each edge type. Use "
                f"method='gradient_x_input' and per_node()."
            )
        return
    if question.task == "link" and method.scores_nodes:
        raise InputError(
            f"{method.name} reads the maps of one graph or node, got task='link'. Use method='gradient_x_input' and per_node()."
        )
    refuse_stand_in(question)
    x = question.graphs[0].x
    if not x.is_floating_point():
        raise InputError(
            f"`data.x` must be floating-point numbers to be scored feature by feature, got {x.dtype}: categories cannot be "
            f"moved or set to 0. Use ew.explain(...) for edges, or look the embeddings up outside the model."
        )


def _names(question: PosedQuestion) -> tuple[str, ...] | None:
    """`data.feature_names`, if there are as many as features."""
    if question.in_one_graph and question.types is None and question.data.get("x") is None:
        raise InputError(
            "Scores of features need `x` at hand, which PyG's stores do not give. Use ew.GraphStore.build(…)."
        )
    first = question.data if isinstance(question.data, Data) else next(iter(question.data))
    given = first.get("feature_names")
    if given is None:
        return None
    names, width = tuple(str(name) for name in given), question.graphs[0].x[:1].numel()
    if len(names) != width:
        raise InputError(
            f"`data.feature_names` must have a name for each of the {width} features, got {len(names)}. "
            f"Use one name for each column of data.x."
        )
    return names


def _assembled(
    question: PosedQuestion,
    method: FeatureMethod,
    parts: list[list[FeatureRows | None]],
    story: dict[str, Any],
    names: tuple[str, ...] | None,
) -> FeatureSet:
    """The blocks as one set."""
    found = [_joined(kind) for kind in zip(*parts, strict=True)]
    scored, attributes = (None, None) if method.scores_nodes else found
    graph = question.graphs[0]
    edge_attr = graph.get("edge_attr")
    nodes, edges = question.sizes(torch.arange(len(question.index)))
    return FeatureSet(
        index=question.index,
        target=question.target.column.cpu(),
        value=question.target.value(question.target.truth).detach().cpu(),
        method=method.name,
        sizes=torch.stack([nodes, edges], dim=1).cpu(),
        num_features=graph.x[:1].numel(),
        num_attributes=0 if attributes is None or edge_attr is None else edge_attr[:1].numel(),
        features=scored,
        attributes=attributes,
        nodes=found[0] if method.scores_nodes else None,
        feature_names=names,
        settings=Settings(story),
        device=question.source_edge_index(0).device,
        n_id=sampled_numbers(question.data)[0] if question.in_one_graph else None,
        given=_given(question),
    )


def _joined(parts: tuple[FeatureRows | None, ...]) -> FeatureRows | None:
    return joined_rows([part for part in parts if part is not None]) if parts[0] is not None else None


def _given(question: PosedQuestion) -> tuple[Tensor, ...] | None:
    """The features of the user's graphs: one table, or one for each target; copies, unless they are large."""
    if question.types is not None:
        return None  # a table for each node type
    tables = [question.data.x] if question.in_one_graph else [question.graphs[i].x for i in question.index.tolist()]
    return tuple(x.detach().clone() if x.numel() < _COPIED else x.detach() for x in tables)
