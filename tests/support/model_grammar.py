"""Random models as source code: two classes, the user's and one for the slow twin.

A model is drawn statement by statement. Both classes have the same modules and do the same; the twin's `forward` also says
before each layer which depth it has and which columns its rows are (`T.at`), weights own messages (`T.own`), and returns the
numbers before the last softmax or sigmoid beside what the model returns. Depth, columns and outputs are known here because
this is what was written down, not because anything was recorded.
"""

from dataclasses import dataclass, field
from random import Random

from conv_grammar import COMMON, FORMS, Form
from drawn_graphs import EDGE_WIDTH, RELATIONS

ACTIVATIONS = ("torch.relu({})", "{}.relu()", "F.elu({})", "torch.tanh({})", "F.leaky_relu({}, 0.1)", "F.gelu({})")
OUTSIDE = {
    "own scatter": "messages by hand beside a layer",
    "noise": "another output in each call",
    "odd output": "an output that cannot be read",
}
"""Constructs that may be refused or warned of."""
NOT_LOCAL = {"norm over all nodes", "read over all nodes", "Cheb"}
STOPS = {"stop"}
"""Constructs that may be refused where a gradient is asked for."""


@dataclass(frozen=True)
class Value:
    """A variable of `forward` with a row for each node."""

    name: str
    width: int
    depth: int


@dataclass(frozen=True)
class Edges:
    """A variable with edges, and those that go with it; `columns` is the twin's, with the column of each."""

    index: str = "edge_index"
    columns: str = "columns"
    attr: str | None = "edge_attr"
    weight: str | None = "edge_weight"
    kinds: str | None = "edge_type"


@dataclass(frozen=True)
class Sketch:
    """What a drawn model is: its two sources, and what is known about it."""

    source: str
    twin: str
    layers: int
    tags: frozenset[str]
    arguments: tuple[str, ...]
    """The names of `forward`, besides features and edges."""
    output: str
    """What it returns: a key of `OUTPUTS`."""
    classes: int
    by_hand: bool = False
    """Whether its arguments must be passed by `forward=`."""

    @property
    def is_local(self) -> bool:
        """Whether a node reads its neighbourhood alone, and the library can know it."""
        return not self.tags & NOT_LOCAL and not any(tag.startswith("by number") for tag in self.tags)


@dataclass
class Draft:
    """The source of a model while it is drawn."""

    random: Random
    nodes: int
    """Rows of tables by number."""
    features: int
    parallel: bool
    loops: bool
    task: str = "node"
    modules: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    twin: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    count: int = 0
    layers: int = 0
    twice: dict[tuple, str] = field(default_factory=dict)

    def module(self, text: str) -> str:
        self.modules.append(f"self.m{len(self.modules)} = {text}")
        return f"self.m{len(self.modules) - 1}"

    def write(self, line: str, twin: str | None = None) -> None:
        self.user.append(line)
        self.twin.append(line if twin is None else twin)

    def value(self, text: str, width: int, depth: int, twin: str | None = None) -> Value:
        self.count += 1
        name = f"h{self.count}"
        self.write(f"{name} = {text}", None if twin is None else f"{name} = {twin}")
        return Value(name, width, depth)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def linear(self, value: Value, width: int) -> Value:
        bias = ", bias=False" if self.chance(0.2) else ""
        return self.value(
            f"{self.module(f'nn.Linear({value.width}, {width}{bias})')}({value.name})", width, value.depth
        )

    def activated(self, value: Value) -> Value:
        act = self.random.choice(ACTIVATIONS)
        return self.value(act.format(value.name), value.width, value.depth)


# Rows, norms, stops ###################################################################################################


def by_number(d: Draft, h: Value) -> Value:
    """Something that depends on the number of a row and not on what the row holds."""
    n, w = d.nodes, h.width
    size = d.random.choice([f"{h.name}.size(0)", f"len({h.name})", f"{h.name}.shape[0]"])
    kinds = {
        "embedding": lambda: f"{d.module(f'nn.Embedding({n}, {w})')}(torch.arange({size}))",
        "longer embedding": lambda: f"{d.module(f'nn.Embedding({n + 7}, {w})')}(torch.arange({size}))",
        "weight of an embedding": lambda: f"{d.module(f'nn.Embedding({n + 7}, {w})')}.weight[:{size}]",
        "parameter by row": lambda: d.module(f"nn.Parameter(torch.randn({n}, {w}))") + rest(d, size),
        "column by row": lambda: d.module(f"nn.Parameter(torch.randn({n}, 1))") + rest(d, size),
        "buffer by row": lambda: (
            d.module(f'getattr(nn, "Buffer", nn.Parameter)(torch.randn({n}, {w}))') + rest(d, size)
        ),
        "python range": lambda: f"0.01 * torch.tensor(range({size})).to({h.name})[:, None]",
        "linspace": lambda: f"torch.linspace(0, 2, {size}).to({h.name}).view(-1, 1)",
        "cumsum": lambda: f"0.01 * {h.name}.new_ones({size}, 1).cumsum(0)",
        "parity": lambda: f"(torch.arange({size}) % 2).to({h.name}).unsqueeze(1)",
        "nonzero": lambda: f"0.01 * ({h.name}[:, 0] == {h.name}[:, 0]).nonzero().to({h.name})",
        "generator": lambda: f"torch.randn({size}, {w}, generator=torch.Generator().manual_seed(3)).to({h.name})",
        "count": lambda: f"{h.name} * (0.01 * {size})",
    }
    kind = d.random.choice(sorted(kinds))
    d.tags.add(f"by number: {kind}")
    text = kinds[kind]()
    if "(" not in kind and kind in ("column by row", "parity") and d.chance(0.5):
        return d.value(f"{h.name} * ({text})", w, h.depth)
    return d.value(f"{h.name} + {text}", w, h.depth)


def rest(d: Draft, size: str) -> str:
    """Of graphs of several sizes, the first rows of a table."""
    return f"[:{size}]" if d.task == "graph" or d.chance(0.3) else ""


def by_given_number(d: Draft, h: Value) -> Value:
    """An embedding of the ids that the data hold."""
    d.used.add("n_id")
    d.tags.add("embedding of given ids")
    return d.value(f"{h.name} + {d.module(f'nn.Embedding({d.nodes + 3}, {h.width})')}(n_id)", h.width, h.depth)


def degrees(d: Draft, h: Value) -> Value:
    """Degrees of nodes, read off `edge_index`: no messages."""
    d.tags.add("degrees")
    end = d.random.choice("01")
    degree = d.random.choice(
        [
            f"degree(edge_index[{end}], len({h.name})).to({h.name})",
            f"{h.name}.new_zeros(len({h.name})).index_add(0, edge_index[{end}], {h.name}.new_ones(edge_index.size(1)))",
            f"scatter({h.name}.new_ones(edge_index.size(1)), edge_index[{end}], dim_size=len({h.name}))",
        ]
    )
    name = d.value(degree, 1, 0).name
    if d.chance(0.5):
        return d.value(f"{h.name} / {name}.clamp(min=1).sqrt()[:, None]", h.width, h.depth)
    return d.value(f"torch.cat([{h.name}, {name}.log1p()[:, None]], dim=1)", h.width + 1, h.depth)


def own_scatter(d: Draft, h: Value) -> Value:
    """Messages that no layer of PyG sends."""
    d.tags.add("own scatter")
    layer = h.depth
    size, given, weight = f"len({h.name})", f"{h.name}[edge_index[0]]", f" * T.own({layer}, columns)[:, None]"
    ways = [
        f"torch.zeros_like({h.name}).index_add(0, edge_index[1], {given}%)",
        f"scatter({given}%, edge_index[1], dim_size=len({h.name}), reduce='mean')",
        f"torch.zeros_like({h.name}).scatter_add_(0, edge_index[1][:, None].expand(-1, {h.width}), {given}%)",
        f"torch.sparse_coo_tensor(edge_index.flip(0), ({h.name}.new_ones(edge_index.size(1))#), ({size}, {size})) @ {h.name}",
    ]
    text = d.random.choice(ways)
    one = weight.removesuffix("[:, None]")
    found = d.value(
        text.replace("%", "").replace("#", ""), h.width, layer + 1, text.replace("%", weight).replace("#", one)
    )
    d.layers = max(d.layers, layer + 1)
    return d.value(f"{h.name} + {found.name}", h.width, layer + 1)


def noise(d: Draft, h: Value) -> Value:
    """Another number in each call."""
    d.tags.add("noise")
    ways = [
        f"F.dropout({h.name}, 0.4, training=True)",
        f"{h.name} + 0.1 * torch.randn_like({h.name})",
        f"{h.name} * torch.rand(len({h.name}), 1).to({h.name})",
        f"{h.name} + 0.1 * torch.normal(0.0, 1.0, {h.name}.shape).to({h.name})",
    ]
    return d.value(d.random.choice(ways), h.width, h.depth)


def norm(d: Draft, h: Value) -> Value:
    """A norm by rows, or over all nodes."""
    w = h.width
    rows = [
        f"nn.BatchNorm1d({w})",
        f"nn.LayerNorm({w})",
        f"pyg.BatchNorm({w})",
        f"pyg.LayerNorm({w}, mode='node')",
        "nn.Dropout(0.5)",
        f"pyg.DiffGroupNorm({w}, 2)",
    ]
    over_all = [
        f"pyg.LayerNorm({w})",
        f"pyg.GraphNorm({w})",
        "pyg.PairNorm()",
        f"nn.BatchNorm1d({w}, track_running_stats=False)",
    ]
    if d.chance(0.25) and d.nodes > 1 and d.task != "graph":
        d.tags.add("norm over all nodes")
        return d.value(f"{d.module(d.random.choice(over_all))}({h.name})", w, h.depth)
    d.tags.add("norm")
    if d.chance(0.2):
        return d.value(f"F.normalize({h.name}, dim=-1)", w, h.depth)
    return d.value(f"{d.module(d.random.choice(rows))}({h.name})", w, h.depth)


def over_all(d: Draft, h: Value) -> Value:
    """Every row reads every other."""
    d.tags.add("read over all nodes")
    ways = [
        f"{h.name} - {h.name}.mean(0)",
        f"{h.name} / {h.name}.abs().max()",
        f"{h.name} + {h.name}.sum(0, keepdim=True) / len({h.name})",
        f"torch.cat([{h.name}, {h.name}.mean(dim=0, keepdim=True).expand_as({h.name})], dim=1)",
    ]
    text = d.random.choice(ways)
    return d.value(text, 2 * h.width if text.startswith("torch.cat") else h.width, h.depth)


def rows(d: Draft, h: Value) -> Value:
    """A step that works row by row, written as people do."""
    d.tags.add("row by row")
    ways = [
        f"torch.where({h.name} > 0, {h.name}, 0.3 * {h.name})",
        f"{h.name}.clamp(min=-0.5)",
        f"{h.name}.abs() + 0.5 * {h.name}",
        f"{h.name} * torch.sigmoid({h.name})",
        f"{h.name}.sign() * {h.name}.abs().log1p()",
        f"{h.name}.masked_fill({h.name} < -0.8, -0.8)",
        f"{h.name} * (x[:, :1] > 0)",
        f"torch.stack([{h.name}, {h.name}.relu()], 0).sum(0)",
        f"{h.name}.softmax(dim=-1)",
        f"F.dropout({h.name}, 0.5, training=self.training)",
        f"{h.name}.view(len({h.name}), -1, 1).squeeze(-1)",
        f"torch.einsum('nd,n->nd', {h.name}, x[:, 0].sigmoid())",
        f"{h.name}[torch.arange(len({h.name}))]",
    ]
    return d.value(d.random.choice(ways), h.width, h.depth)


def stop(d: Draft, h: Value) -> Value:
    """The gradient stops, for all rows or some."""
    d.tags.add("stop")
    kind = d.random.choice(["detach", "part", "no_grad", "some", "checkpoint", "data"])
    d.tags.add(f"stop: {kind}")
    if kind == "detach":
        return d.value(f"{h.name} + torch.tanh({h.name}).detach()", h.width, h.depth)
    if kind == "part":
        half = max(h.width // 2, 1)
        return d.value(f"torch.cat([{h.name}[:, :{half}], {h.name}[:, {half}:].detach()], dim=1)", h.width, h.depth)
    if kind == "some":
        return d.value(f"torch.where(x[:, :1] > 0, {h.name}.detach(), {h.name})", h.width, h.depth)
    if kind == "checkpoint":
        return d.value(f"checkpoint(torch.tanh, {h.name}, use_reentrant=False)", h.width, h.depth)
    if kind == "data":
        return d.value(f"{h.name} * {h.name}.data.norm(dim=1, keepdim=True)", h.width, h.depth)
    d.count += 1
    name = f"h{d.count}"
    d.write(f"with torch.no_grad():\n            {name} = {h.name}.sigmoid()")
    return d.value(f"{h.name} * {name}", h.width, h.depth)


# Layers ###############################################################################################################


def edges(d: Draft) -> Edges:
    """The given edges, or some of them, or both ways."""
    plain = Edges()
    if not d.chance(0.18):
        return plain
    d.count += 1
    new = Edges(f"e{d.count}", f"c{d.count}", f"a{d.count}", f"w{d.count}", None)
    kind = d.random.choice(["kept", "kept by ends", "flipped", "both ways", "no loops", "sorted"])
    d.tags.add(f"edges: {kind}")
    if kind in ("flipped", "both ways"):
        back = "edge_index.flip(0)"
        joined = kind == "both ways"
        d.write(f"{new.index} = {f'torch.cat([edge_index, {back}], dim=1)' if joined else back}")
        d.twin.append(f"{new.columns} = {'torch.cat([columns, columns])' if joined else 'columns'}")
        return Edges(new.index, new.columns, None if joined else "edge_attr", None if joined else "edge_weight", None)
    keep = {
        "kept": "edge_attr[:, 0] > 0.3",
        "kept by ends": "x[edge_index[0], 0] + x[edge_index[1], 0] > -0.5",
        "no loops": "edge_index[0] != edge_index[1]",
        "sorted": "edge_index[1].argsort(stable=True)",
    }[kind]
    d.write(f"k{d.count} = {keep}")
    d.write(f"{new.index} = edge_index[:, k{d.count}]")
    d.twin.append(f"{new.columns} = columns[k{d.count}]")
    if kind == "kept":
        d.used.add("edge_attr")
    return Edges(new.index, new.columns, f"edge_attr[k{d.count}]", f"edge_weight[k{d.count}]", None)


def _third(d: Draft, e: Edges, form: Form, h: Value) -> tuple[str, int] | None:
    """The third argument of a call and its depth, or None if these edges have none."""
    if not form.needs:
        return "", h.depth
    text = e.attr if form.needs == "attr" else e.weight
    if text is None:
        return None
    d.used.add("edge_attr" if form.needs == "attr" else "edge_weight")
    if form.needs == "weight" and d.chance(0.25) and e.index == "edge_index":
        d.tags.add("learned edge weights")
        lin = d.module(f"nn.Linear({2 * h.width}, 1)")
        ends = f"torch.cat([{h.name}[edge_index[0]], {h.name}[edge_index[1]]], dim=1)"
        return f", {lin}({ends}).sigmoid().view(-1)", h.depth
    return f", {text}", h.depth


def conv(d: Draft, h: Value, width: int) -> Value:
    """A layer of PyG, or a user's own."""
    e = edges(d)
    while True:
        form = d.random.choice(COMMON if d.chance(0.55) else FORMS)
        if form.name in ("EdgeConv", "NN", "MF") and h.width > 20:
            continue
        if form.kinked and d.parallel:
            continue
        third = _third(d, e, form, h)
        if third is not None:
            break
    d.tags.add(form.name)
    d.tags.update(form.tags)
    source, depth = h.name, h.depth
    if form.pair and d.chance(0.2):
        source, depth = _pair(d, h)
    width = h.width if form.square else width
    name = _module_of(d, form, h.width, width)
    call = f"{name}({source}, {e.index}{third[0]})"
    return _called(d, form, e, name, call, depth, width)


def _called(d: Draft, form: Form, e: Edges, name: str, call: str, depth: int, width: int) -> Value:
    d.twin.append(f"T.at({name}, {depth}, {e.index}, {e.columns}, {form.loops!r}, {form.calls}, len(x))")
    d.layers = max(d.layers, depth + form.calls)
    return d.value(call, width, depth + form.calls)


def _module_of(d: Draft, form: Form, inputs: int, outputs: int) -> str:
    """A new module, or now and then one that was called before."""
    key = (form, inputs, outputs)
    if key in d.twice and d.chance(0.5):
        d.tags.add("layer used twice")
        return d.twice[key]
    act = d.random.choice(["ReLU", "Tanh"])
    made = form.make.format(i=inputs, o=outputs, half=max(outputs // 2, 1), d=EDGE_WIDTH, act=act)
    d.twice[key] = d.module(made)
    return d.twice[key]


def _pair(d: Draft, h: Value) -> tuple[str, int]:
    """Two tables: senders and receivers."""
    d.tags.add("pair")
    ways = ["torch.tanh({})", "0.5 * {}", "-{}", "{}.flip(1)", "F.normalize({})", "{}.detach()", "LIN({})"]
    way = d.random.choice(ways)
    if "detach" in way:
        d.tags.add("stop")
    text = way.format(h.name).replace("LIN", d.module(f"nn.Linear({h.width}, {h.width})") if "LIN" in way else "")
    ends = [h.name, text] if d.chance(0.6) else [text, h.name]
    return f"({', '.join(ends)})", h.depth


def relational(d: Draft, h: Value, width: int) -> Value:
    """One call for each relation, side by side."""
    kind = d.random.choice(["RGCNConv", "FastRGCNConv"])
    d.tags.add(kind)
    d.used.add("edge_type")
    name = d.module(f"pyg.{kind}({h.width}, {width}, {RELATIONS})")
    if kind == "RGCNConv":
        d.twin.append(f"T.by_kind({name}, {h.depth}, columns, edge_type, {RELATIONS})")
    else:
        d.twin.append(f"T.at({name}, {h.depth}, edge_index, columns, '', 1, len(x))")
    d.layers = max(d.layers, h.depth + 1)
    return d.value(f"{name}({h.name}, edge_index, edge_type)", width, h.depth + 1)


def both_ways(d: Draft, h: Value, width: int) -> Value:
    """A layer that sends along the edges and against them."""
    d.tags.add("DirGNN")
    name = d.module(f"pyg.DirGNNConv(pyg.SAGEConv({h.width}, {width}))")
    d.twin.append(f"T.at({name}.conv_in, {h.depth}, edge_index, columns, '', 1, len(x))")
    d.twin.append(f"T.at({name}.conv_out, {h.depth}, edge_index.flip(0), columns, '', 1, len(x))")
    d.layers = max(d.layers, h.depth + 1)
    return d.value(f"{name}({h.name}, edge_index)", width, h.depth + 1)


def stack(d: Draft, h: Value, width: int) -> Value:
    """A whole network of PyG."""
    kind, loops = d.random.choice([("GCN", "added"), ("GraphSAGE", ""), ("GIN", ""), ("GAT", "added")])
    jump = d.random.choice(["", ", jk='cat'", ", jk='max'", ", jk='last'"])
    norm = d.random.choice(["", ", norm='batch_norm'"])
    d.tags.add(f"network {kind}")
    name = d.module(f"pyg.{kind}({h.width}, 4, 2, {width}{jump}{norm})")
    for layer in range(2):
        d.twin.append(f"T.at({name}.convs[{layer}], {h.depth + layer}, edge_index, columns, {loops!r}, 1, len(x))")
    d.layers = max(d.layers, h.depth + 2)
    return d.value(f"{name}({h.name}, edge_index)", width, h.depth + 2)


def layer(d: Draft, h: Value, width: int) -> Value:
    """One step of message passing: a layer, branches, or a residual around it."""
    kind = d.random.random()
    if kind < 0.04 and not d.parallel and d.task == "node":
        return relational(d, h, width)
    if kind < 0.07:
        return both_ways(d, h, width)
    if kind < 0.11:
        return stack(d, h, width)
    out = conv(d, h, width)
    if kind < 0.22:
        other = conv(d, h if d.chance(0.7) else d.activated(h), width)
        return _joined(d, out, other)
    if kind < 0.32:
        d.tags.add("residual")
        skip = h if h.width == out.width else d.linear(h, out.width)
        return d.value(f"{out.name} + {skip.name}", out.width, out.depth)
    return out


def _joined(d: Draft, a: Value, b: Value) -> Value:
    d.tags.add("branches")
    depth = max(a.depth, b.depth)
    if a.width == b.width and d.chance(0.6):
        ways = ["{} + {}", "0.5 * ({} + {})", "torch.maximum({}, {})", "{} * torch.sigmoid({})"]
        return d.value(d.random.choice(ways).format(a.name, b.name), a.width, depth)
    return d.value(f"torch.cat([{a.name}, {b.name}], dim=-1)", a.width + b.width, depth)


# Models ###############################################################################################################

STEPS = [
    (norm, 0.18),
    (rows, 0.12),
    (stop, 0.05),
    (by_number, 0.05),
    (over_all, 0.03),
    (degrees, 0.04),
    (own_scatter, 0.03),
    (noise, 0.015),
]
"""What may come between layers, and how often."""
OUTPUTS = {
    "logits": "{z}",
    "log_softmax": "F.log_softmax({z}, dim=-1)",
    "LogSoftmax": "MODULE({z})",
    "softmax": "{z}.softmax(-1)",
    "sigmoid of one": "torch.sigmoid({z})",
    "squeezed sigmoid of one": "{z}.squeeze(-1).sigmoid()",
    "one": "{z}",
    "value": "{z}",
    "values": "{z}",
    "sigmoid of many": "torch.sigmoid({z})",
    "odd: one minus sigmoid": "1 - torch.sigmoid({z})",
    "odd: hard sigmoid": "F.hardsigmoid({z})",
    "odd: permuted": "F.log_softmax({z}, dim=-1).flip(-1)",
    "odd: by hand": "{z} - torch.logsumexp({z}, dim=-1, keepdim=True)",
    "odd: rounded": "{z}.softmax(-1).mul(100).round() / 100",
}
_OF_ONE = {"sigmoid of one", "squeezed sigmoid of one", "one", "value", "odd: one minus sigmoid", "odd: hard sigmoid"}


def between(d: Draft, h: Value) -> Value:
    """Steps between layers."""
    for step, share in STEPS:
        if d.chance(share):
            h = step(d, h)
    return h


def body(d: Draft, h: Value) -> Value:
    """Layers one after the other, with what comes between them."""
    if d.chance(0.5) or h.width > 20:
        h = d.linear(h, d.random.choice([4, 6]))
        if d.chance(0.5):
            h = d.activated(h)
    if d.chance(0.06):
        h = by_given_number(d, h) if d.task == "node" else h
    h = between(d, h)
    first, states = h, []
    for _ in range(d.random.choice([1, 2, 2, 2, 3])):
        if d.layers >= 4:
            break
        h = layer(d, h, d.random.choice([4, 6]))
        h = between(d, h)
        h = d.activated(h) if d.chance(0.7) else h
        states.append(h)
    if len(states) > 1 and d.chance(0.1):
        d.tags.add("jump")
        return d.value(
            f"torch.cat([{', '.join(s.name for s in states)}], dim=-1)", sum(s.width for s in states), h.depth
        )
    if d.chance(0.05):
        d.tags.add("long skip")
        return d.value(f"torch.cat([{h.name}, {first.name}], dim=-1)", h.width + first.width, h.depth)
    return h


def _head(d: Draft, h: Value, width: int) -> Value:
    if d.chance(0.3):
        h = d.activated(d.linear(h, 4))
    return d.linear(h, width)


def output(d: Draft) -> tuple[str, int]:
    """What the model returns, and how many columns."""
    kinds = ["logits"] * 10 + [k for k in OUTPUTS if not k.startswith("odd")] * 2
    kinds += [k for k in OUTPUTS if k.startswith("odd")] if d.chance(0.3) else []
    kind = d.random.choice(kinds)
    if kind.startswith("odd"):
        d.tags.update(["odd output", kind])
    return kind, 1 if kind in _OF_ONE else d.random.randint(2, 4)


def returned(d: Draft, z: Value, kind: str) -> None:
    """The last lines: what the user's model returns, and for the twin the numbers before it."""
    text = OUTPUTS[kind].format(z=z.name)
    if kind == "LogSoftmax":
        text = text.replace("MODULE", d.module("nn.LogSoftmax(dim=-1)"))
    d.user.append(f"return {text}")
    d.twin.append(f"return {z.name}, {text}")


def draw_model(random: Random, *, nodes: int, features: int, parallel: bool, loops: bool, task: str) -> Sketch:
    """A model for a graph of this size; `task` is `"node"`, `"graph"` or `"link"`."""
    d = Draft(random, nodes, features, parallel, loops, task)
    h = body(d, Value("x", features, 0))
    kind, classes = ("logits", 1) if task == "link" else output(d)
    if task == "graph":
        h = _pooled(d, h)
    if task == "link":
        _decoder(d, h)
    else:
        returned(d, _head(d, h, classes), kind)
    order = ["edge_attr", "edge_weight", "edge_type", "n_id", "batch", "edge_label_index"]
    text = "\n".join(d.user)
    d.used.update(name for name in order if name in text)
    arguments = tuple(name for name in order if name in d.used)
    by_hand = bool(d.used & {"edge_type", "n_id"})
    source, twin = (_source(d, lines, arguments) for lines in (d.user, ["columns = T.columns", *d.twin]))
    return Sketch(source, twin, d.layers, frozenset(d.tags), arguments, kind, classes, by_hand)


def _pooled(d: Draft, h: Value) -> Value:
    pool = d.random.choice(["add", "mean", "max"])
    d.tags.add(f"pool {pool}")
    if d.chance(0.8):
        return d.value(f"pyg.global_{pool}_pool({h.name}, batch)", h.width, h.depth)
    d.tags.add("pooled without batch")
    way = {"add": "sum(0, keepdim=True)", "mean": "mean(0, keepdim=True)", "max": "amax(0, keepdim=True)"}[pool]
    return d.value(f"{h.name}.{way}", h.width, h.depth)


def _decoder(d: Draft, h: Value) -> None:
    """One number for each pair."""
    u, v = f"{h.name}[edge_label_index[0]]", f"{h.name}[edge_label_index[1]]"
    if d.chance(0.5):
        z = d.value(f"({u} * {v}).sum(dim=-1)", 1, h.depth)
    else:
        z = d.value(f"{d.module(f'nn.Linear({2 * h.width}, 1)')}(torch.cat([{u}, {v}], dim=-1)).view(-1)", 1, h.depth)
    d.user.append(f"return {z.name}")
    d.twin.append(f"return {z.name}, {z.name}")


def _source(d: Draft, lines: list[str], arguments: tuple[str, ...]) -> str:
    given = "".join(f", {name}" for name in arguments)
    return "\n".join(
        [
            "import torch",
            "from torch import nn",
            "from torch.nn import functional as F",
            "from torch.utils.checkpoint import checkpoint",
            "from torch_geometric import nn as pyg",
            "from torch_geometric.utils import degree, scatter",
            "",
            "import drawn_convs",
            "",
            "",
            "class Drawn(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in d.modules or ["pass"]),
            "",
            f"    def forward(self, x, edge_index{given}):",
            *(f"        {line}" for line in lines),
            "",
        ]
    )
