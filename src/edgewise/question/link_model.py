"""A model of links on one graph, for some pairs of its nodes: the scores themselves, and the ways in which it can be run.

Lowered: a program for the nodes and the model's own decoder (`link_engine.py`). Copies: the model on the neighbourhoods of the
pairs side by side. Or the whole graph for each pair. Which of them are right is found out by comparing every pair.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.engines import CopiesEngine, Engine, WholeGraphEngine
from edgewise.errors import ModelError
from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies, disturbed
from edgewise.graph.pair_copies import LinkColumns, pair_neighbourhoods, pair_sizes, pair_whole_graph, with_pairs
from edgewise.graph.pair_patches import patched_graph
from edgewise.model.call import GraphForward, ModelCall
from edgewise.model.head import ModelOutput, read_output
from edgewise.model.link_call import DecoderForward, LinkForward
from edgewise.model.twin import make_twin
from edgewise.model.weighted_model import WeightedGraph, WeightedModel
from edgewise.question.equality import (
    NOT_REPEATABLE,
    Audit,
    at_random,
    close,
    scale_of_change,
    warn_not_local,
)
from edgewise.question.known_model import reads_further, rim_of
from edgewise.question.link_engine import Decoder, LinkEngine, decoder_of, encoded, shared_scores
from edgewise.question.node_model import NodeModel
from edgewise.question.row_origins import RowOrigins
from edgewise.question.subject import Subject

_FEW = 16
"""Pairs without their own link that are each run on the whole graph, whatever else is known about the model."""
_AT_ONCE = 128


class LinkModel:
    """The scores of pairs `[T, 2]` of a graph, and engines for them; numbers of nodes and columns are those of the graph."""

    is_direct = False
    """Whether `model.decode` stands behind the last layer of a lowered model: it reads rows, and nothing else."""

    def __init__(
        self,
        subject: Subject,
        encoder: NodeModel | None,
        graph: Data,
        pairs: Tensor,
        asked: tuple[str | None, str | None] | ModelOutput,
        itself: LinkColumns | None = None,
    ) -> None:
        """`asked` is what the user says about the output, or what was found out about it before.

        `encoder` is what the last layer makes of the nodes of this graph. `itself` are the columns that pairs lose.
        """
        self.subject, self.encoder, self.graph, self.pairs = subject, encoder, graph, pairs
        self.device = graph.edge_index.device
        self._calls = sum(operation.is_layer for operation in subject.first.operations)
        self.audit, self._probed = Audit(), False
        recorded = with_pairs(graph, pairs)
        trace = subject.recorded(recorded)
        self.output, trace = (
            (asked, asked.shorten(trace)) if isinstance(asked, ModelOutput) else read_output(trace, *asked)
        )
        self._check_rows(trace.output)
        is_plain = not isinstance(subject.call.forward, GraphForward)
        self.origins = RowOrigins.of_pairs(trace, recorded) if is_plain else None
        """Where the rows come from that pairs are scored by; None for typed graphs, which are never cut."""
        self.trace = trace.without_tensors()
        self.call = replace(self.output.apply(subject.call), changes_input=trace.changes_input)
        self.weighted = WeightedModel(self.call, subject.layers, self.trace)
        self.num_layers = self.trace.num_layers
        self.in_edges = InEdges.of(graph.edge_index, graph.num_nodes, self.trace.flow)
        self.rim = rim_of(self.trace)
        if self.rim and isinstance(self.call.forward, GraphForward):
            self.rim = "nodes"  # of a typed graph no far node can stand for those of other types
        self.itself = itself
        """The columns that pairs lose; None if none does."""
        self.local = not reads_further(trace)
        """Whether copies of neighbourhoods may be run, as far as is known."""
        if not self.local:
            warn_not_local(reads_further(trace), "pair is explained on the whole graph")
        with self.borrowed():
            self.is_lowered = self._decodes(trace.output)
            truth, self.together = (trace.output, True) if self.is_lowered else self._together_truth(trace.output)
            self.truth = self._without_links(truth)
            """`[T, 1]`: the model's own scores, with what goes into its last sigmoid."""

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """The model, and the encoder's twin of it."""
        with self.subject.loan.taken():
            if self.encoder is None:
                yield
            else:
                with self.encoder.loan.taken():
                    yield

    def _check_rows(self, rows: Tensor) -> None:
        if len(rows) != len(self.pairs) or rows.size(1) != 1:
            raise ModelError(
                f"A link task needs one number for each of the {len(self.pairs)} pairs, the model gave {len(rows)} rows with "
                f"{rows.size(1)} columns. Use forward=lambda model, data, pairs: ... to pick it, such as [:, 1]."
            )

    # --- the truth ------------------------------------------------------------------------------------------------------

    def _together_truth(self, rows: Tensor) -> tuple[Tensor, bool]:
        """The model's scores `[T, 1]`, and whether pairs may share a pass: the first and the last one alone say so."""
        if len(rows) == 1:
            return rows, True
        few = [0, len(rows) - 1]
        if close(torch.cat([self._alone(i) for i in few]), rows[few]):
            return rows, True
        if not close(self._alone(0), self._alone(0)):
            raise ModelError(NOT_REPEATABLE)
        warn_not_local("pairs in a pass change each other's score", "pair is run on its own")
        self.local = False
        return torch.cat([self._alone(i) for i in range(len(rows))]), False

    def _alone(self, position: int) -> Tensor:
        """The score of one pair on the graph, with its own link, `[1, 1]`."""
        with torch.no_grad():
            return self.call(with_pairs(self.graph, self.pairs[position : position + 1]))

    def _without_links(self, truth: Tensor) -> Tensor:
        """The scores where pairs lose their own link, `[T, 1]`."""
        if self.itself is None:
            return truth
        losing = self.itself.counts.nonzero().view(-1)
        with torch.no_grad():
            rows = self._by_copies(losing, truth[losing])
            if rows is None:
                rows = torch.cat([self.call(self._whole(i).data) for i in losing.tolist()])
        return truth.index_copy(0, losing, rows)

    def _by_copies(self, losing: Tensor, linked: Tensor) -> Tensor | None:
        """The scores of many pairs without their own links from copies; None if each should be run on the whole graph.

        Only where layers are known to read nothing beyond what copies hold. Every copy must give its pair's score `linked` as
        long as it has the link, and without it the score of its pair in a patched graph, around which everything else stays;
        the first and the last one also that of the whole graph without the link.
        """
        if not self.local or self.in_edges.both_ways or self.rim == "nodes" or len(losing) <= _FEW:
            return None
        rows = []
        for part in losing.split(_AT_ONCE):
            whole, cut = self._neighbourhoods(part, with_links=True), self._neighbourhoods(part)
            rows.append((self.call(whole.data), self.call(cut.data), self._patched(part)))
        with_link, without, patched = (torch.cat(column) for column in zip(*rows, strict=True))
        alone = torch.cat([self.call(self._whole(i).data) for i in losing[[0, -1]].tolist()])
        agree = ((with_link, linked), (without, patched), (without[[0, -1]], alone))
        return without if all(close(*both) for both in agree) else None

    def _patched(self, positions: Tensor) -> Tensor:
        """The scores of some pairs without their own links, from one run on a patched graph, `[n, 1]`."""
        assert self.itself is not None
        about = (self.pairs[positions], self.itself.part(positions))
        patched = patched_graph(self.graph, self.in_edges, *about, self.num_layers - 1)
        return self.call(with_pairs(patched.data, patched.pairs))

    # --- the lowered way ------------------------------------------------------------------------------------------------

    def _decodes(self, truth: Tensor) -> bool:
        """Whether program and decoder together are the model: every pair at ω = 1 and at random ω and s, and two alone."""
        encoder = self.encoder
        if encoder is None or encoder.lowering is None or encoder.num_layers != self.num_layers:
            return False
        rows, random, weights = encoded(encoder, self.num_layers, truth)
        carried = len(self.trace.residuals) > len(
            encoder.trace.residuals
        )  # the decoder reads what skips the last layer
        is_plain = self.call.head is None and not self.call.stated and not carried
        true = shared_scores(encoder, weights, self.pairs) if is_plain else None
        if true is None:
            with torch.no_grad():
                true = self.weighted(WeightedGraph(with_pairs(self.graph, self.pairs)), *weights)
        assert isinstance(self.subject.call.forward, LinkForward)
        self._forward = self.subject.call.forward
        for is_direct in (True, False):
            self.is_direct = is_direct
            if is_direct and not self._forward.has_decoder(self.call.model):
                continue
            if self._decodes_as(rows, random, truth, true):
                return True
        return False

    def _decodes_as(self, rows: Tensor, random: Tensor, truth: Tensor, true: Tensor) -> bool:
        """The same for one way to decode: `rows` must give `truth`, those at random weights what the model is `true` for."""
        everyone, alone = torch.arange(len(self.pairs)), [0, len(self.pairs) - 1]
        decode = self.decoder(everyone)
        try:
            with torch.no_grad():
                by_itself = torch.cat([self.decoder(everyone[i : i + 1])(rows[self.pairs[i]]) for i in alone])
                ends = self.ends(everyone)
                plain, weighted = decode(rows[ends]), decode(random[ends])
        except ModelError:
            return False
        scale = scale_of_change(true, truth)
        if not all(close(*both, scale) for both in ((plain, truth), (weighted, true), (by_itself, truth[alone]))):
            return False
        if not self._decodes_each(rows[ends]):
            return False
        self.audit.value_error = float((plain - truth).abs().max())
        self.audit.weighted_error = float(((weighted - true).abs() / scale.clamp(min=1e-30)).max())
        return True

    def _decodes_each(self, rows: Tensor) -> bool:
        """Whether a pair's score follows from its own two rows `[2 pairs, width]` where all differ: equal ones hide a mean."""
        count = len(self.pairs)
        many = torch.arange(max(count, 2)) % count
        factors = torch.linspace(0.5, 1.5, 2 * len(many), dtype=rows.dtype, device=rows.device)
        first, second = rows.view(2, count, *rows.shape[1:])[:, many.to(rows.device)]
        unequal = torch.cat([first, second]) * factors.view(-1, *[1] * (rows.dim() - 1))
        unequal = unequal + factors.view(-1, *[1] * (rows.dim() - 1))
        ends = [0, len(many) - 1]
        try:
            with torch.no_grad():
                together = self.decoder(many)(unequal)[ends]
                alone = [self.decoder(many[i : i + 1])(unequal[[i, len(many) + i]]) for i in ends]
        except ModelError:
            return False
        return close(together, torch.cat(alone))

    def ends(self, positions: Tensor) -> Tensor:
        """`[2 n]`: the first ends of some pairs, then the second ones."""
        return self.pairs[positions.to(self.device)].t().reshape(-1)

    def decoder(self, positions: Tensor, call: ModelCall | None = None) -> Decoder:
        """The model (or, with `call`, another one) behind its last layer, for some pairs."""
        behind = DecoderForward(self._forward, self._calls, self.pairs.new_zeros(0), self.is_direct)
        return decoder_of(self.call if call is None else call, behind, self.graph, self.ends(positions))

    # --- ways to run it -------------------------------------------------------------------------------------------------

    def engine(self, positions: Tensor) -> Engine:
        """The program with the decoder, copies of neighbourhoods, or the whole graph."""
        lowering = None if self.encoder is None else self.encoder.lowering
        if lowering is not None and self.is_lowered and not self._lose_links(positions):
            engine = LinkEngine(lowering.engine(self.ends(positions)), self.decoder(positions))
            lowering.last_block_bytes += engine.joined_bytes(lowering.dtype.itemsize)
            return engine
        parts = [CopiesEngine(self.weighted, copies) for copies in self.copies(positions)]
        return parts[0] if self.local else WholeGraphEngine(parts, same_graph=False)

    def double_engine(self, positions: Tensor) -> LinkEngine | None:
        """Program and decoder in float64, to take differences; None where the whole model stands behind the last layer."""
        lowering = None if self.encoder is None else self.encoder.lowering
        if lowering is None or not self.is_lowered or not self.is_direct or self._lose_links(positions):
            return None
        twin = make_twin(self.call.model)
        if twin.borrowed:
            return None
        ends = lowering.double_engine(self.ends(positions))
        return LinkEngine(ends, self.decoder(positions, self.call.in_double(twin.model.double())))

    def _lose_links(self, positions: Tensor) -> bool:
        """Whether some of the pairs are explained without their own link."""
        return self.itself is not None and bool(self.itself.counts[positions.to(self.device)].any())

    def copies(self, positions: Tensor) -> list[Copies]:
        """Neighbourhoods of the pairs side by side, or the whole graph for each pair."""
        if self.local:
            copies = self._neighbourhoods(positions)
            if self._are_true(copies, positions):
                return [copies]
            self.local = False
            why = "a copy of a pair's neighbourhood does not give its true score"
            warn_not_local(why, "pair is explained on the whole graph")
        return self.wholes(positions)

    def plain_copies(self, positions: Tensor) -> list[Copies]:
        """The same without a look whether every copy gives its pair's score."""
        return [self._neighbourhoods(positions)] if self.local else self.wholes(positions)

    def wholes(self, positions: Tensor) -> list[Copies]:
        """The whole graph for each pair."""
        return [self._whole(i) for i in positions.tolist()]

    def _neighbourhoods(self, positions: Tensor, *, with_links: bool = False) -> Copies:
        """The copies of some pairs; `with_links`: nothing is left out."""
        left_out = None if self.itself is None or with_links else self.itself.select(positions)
        pairs = self.pairs[positions.to(self.device)]
        return pair_neighbourhoods(self.graph, self.in_edges, pairs, self.num_layers, rim=self.rim, left_out=left_out)

    def _whole(self, position: int) -> Copies:
        left_out = None if self.itself is None else self.itself.select(torch.tensor([position]))[1]
        return pair_whole_graph(self.graph, self.in_edges, self.pairs[position], self.num_layers, left_out)

    def _are_true(self, copies: Copies, positions: Tensor) -> bool:
        """Whether every copy gives its pair's score at ω = 1, and the very first one also at random ω and s."""
        true = self.truth[positions.to(self.device)]
        try:
            with torch.no_grad():
                if not close(self.call(copies.data), true):
                    return False
                if self._probed:
                    return True
                self._probed = True
                if not self._stay_apart(copies, true):
                    return False
                first, whole = self._neighbourhoods(positions[:1]), self._whole(int(positions[0]))
                near, far = (
                    at_random(CopiesEngine(self.weighted, one), self.num_layers, self.truth) for one in (first, whole)
                )
                return close(near, far, scale_of_change(far, true[:1]))
        except ModelError:
            return False  # the model raises on the copies: whole graph

    def _stay_apart(self, copies: Copies, true: Tensor) -> bool:
        """Whether pairs keep their scores while every other copy holds something else: no maximum over all rows, say."""
        is_odd = torch.arange(len(true), device=true.device) % 2 == 1
        halves = [(which, self.call(disturbed(copies, which).data)) for which in (is_odd, ~is_odd) if len(true) > 1]
        return all(close(rows[~which], true[~which]) for which, rows in halves)

    @property
    def is_known_local(self) -> bool:
        """Whether nothing beyond L hops matters; found out for one pair, if no method has run yet."""
        if not self.is_lowered and self.local and not self._probed:
            self.copies(torch.zeros(1, dtype=torch.long))
        return self.is_lowered or self.local

    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and edges of the graphs on which the pairs are run."""
        pairs, hops = self.pairs[positions.to(self.device)], self.num_layers + (1 if self.rim else 0)
        if not self.local:
            return torch.full_like(pairs[:, 0], self.graph.num_nodes), torch.full_like(
                pairs[:, 0], len(self.in_edges.edge)
            )
        return pair_sizes(self.in_edges, pairs, hops)
