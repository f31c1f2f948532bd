"""The convolutions that drawn models are made of: how each is written, called, and how it treats loops."""

from dataclasses import dataclass

from pyg_versions import GENERAL_RUNS, HAS_RESIDUAL


@dataclass(frozen=True)
class Form:
    """One convolution with one choice of options; `{i}`, `{o}`, `{half}`, `{d}` are its widths."""

    name: str
    make: str
    loops: str = ""
    """Loops that it adds: `""`, none; `"added"`, one for each node, in the place of those that it was given."""
    needs: str = ""
    """A third argument: `"attr"` or `"weight"`."""
    calls: int = 1
    """Calls of `propagate`, one behind the other."""
    pair: bool = False
    """Whether it takes two tables of the same width."""
    square: bool = False
    """Whether its output is as wide as its input."""
    kinked: bool = False
    """Whether a maximum over messages can be tied."""
    tags: tuple[str, ...] = ()


_MLP = "nn.Sequential(nn.Linear({i}, {o}), nn.{act}(), nn.Linear({o}, {o}))"
_MLP_TWICE = "nn.Sequential(nn.Linear(2 * {i}, {o}), nn.{act}(), nn.Linear({o}, {o}))"

FORMS = [
    Form("GCN", "pyg.GCNConv({i}, {o})", "added"),
    Form("GCN", "pyg.GCNConv({i}, {o}, improved=True, bias=False)", "added"),
    Form("GCN", "pyg.GCNConv({i}, {o})", "added", "weight"),
    Form("GCN", "pyg.GCNConv({i}, {o}, add_self_loops=False)"),
    Form("GCN", "pyg.GCNConv({i}, {o}, normalize=False)", needs="weight"),
    Form("SAGE", "pyg.SAGEConv({i}, {o})", pair=True),
    Form("SAGE", "pyg.SAGEConv({i}, {o}, aggr='sum', root_weight=False)", pair=True),
    Form("SAGE", "pyg.SAGEConv({i}, {o}, normalize=True)", pair=True),
    Form("SAGE", "pyg.SAGEConv({i}, {o}, project=True)", pair=True),
    Form("SAGE max", "pyg.SAGEConv({i}, {o}, aggr='max')", pair=True, kinked=True),
    Form("GraphConv", "pyg.GraphConv({i}, {o})", pair=True),
    Form("GraphConv", "pyg.GraphConv({i}, {o}, aggr='mean')", needs="weight", pair=True),
    Form("GIN", f"pyg.GINConv({_MLP}, train_eps=True)", pair=True),
    Form("GINE", f"pyg.GINEConv({_MLP}, train_eps=True, edge_dim={{d}})", needs="attr", pair=True),
    Form("GAT", "pyg.GATConv({i}, {half}, heads=2)", "added", pair=True),
    Form("GAT", "pyg.GATConv({i}, {o}, heads=2, concat=False)", "added", pair=True),
    Form("GAT", "pyg.GATConv({i}, {o}, add_self_loops=False)", pair=True),
    Form("GAT", "pyg.GATConv({i}, {half}, heads=2, edge_dim={d})", "added", "attr", pair=True),
    Form(
        "GAT", "pyg.GATConv({i}, {o}, residual=True)" if HAS_RESIDUAL else "pyg.GATConv({i}, {o})", "added", pair=True
    ),
    Form("GATv2", "pyg.GATv2Conv({i}, {half}, heads=2)", "added", pair=True),
    Form("GATv2", "pyg.GATv2Conv({i}, {o}, share_weights=True)", "added", pair=True),
    Form("GATv2", "pyg.GATv2Conv({i}, {o}, add_self_loops=False, edge_dim={d})", needs="attr", pair=True),
    Form("Transformer", "pyg.TransformerConv({i}, {half}, heads=2)", pair=True),
    Form("Transformer", "pyg.TransformerConv({i}, {o}, beta=True)", pair=True),
    Form("Transformer", "pyg.TransformerConv({i}, {o}, edge_dim={d}, root_weight=False)", needs="attr", pair=True),
    Form("ResGated", "pyg.ResGatedGraphConv({i}, {o})", pair=True),
    Form("SG", "pyg.SGConv({i}, {o}, K=2)", "added", calls=2),
    Form("SSG", "pyg.SSGConv({i}, {o}, alpha=0.2, K=2)", "added", calls=2),
    Form("TAG", "pyg.TAGConv({i}, {o}, K=2)", calls=2),
    Form("APPNP", "pyg.APPNP(2, 0.2)", "added", calls=2, square=True),
    Form("Cheb", "pyg.ChebConv({i}, {o}, K=2)", "added"),
    Form("LE", "pyg.LEConv({i}, {o})", pair=True),
    Form("ClusterGCN", "pyg.ClusterGCNConv({i}, {o})", "added"),
    Form("GEN", "pyg.GENConv({i}, {o}, aggr='softmax')", pair=True),
    Form("EdgeConv", f"pyg.EdgeConv({_MLP_TWICE}, aggr='mean')", pair=True),
    Form("NN", "pyg.NNConv({i}, {o}, nn.Linear({d}, {i} * {o}), aggr='mean')", needs="attr", pair=True),
    Form("CG", "pyg.CGConv({i}, {d})", needs="attr", pair=True, square=True),
    Form("FiLM", "pyg.FiLMConv({i}, {o})", pair=True),
    Form("MF", "pyg.MFConv({i}, {o}, max_degree=4)", pair=True),
    Form("FeaSt", "pyg.FeaStConv({i}, {o}, heads=2)", "added", pair=True),
    Form("ARMA", "pyg.ARMAConv({i}, {o})"),
    Form("EG", "pyg.EGConv({i}, {o}, num_heads=1, num_bases=2, aggregators=['symnorm', 'mean'])", "added"),
    Form("General", "pyg.GeneralConv({i}, {o})" if GENERAL_RUNS else "pyg.GraphConv({i}, {o})", pair=True),
    Form(
        "PNA",
        "pyg.PNAConv({i}, {o}, ['mean', 'std'], ['identity', 'amplification'], torch.tensor([1, 3, 4, 2, 1]))",
    ),
    Form("own GAT", "drawn_convs.OwnGAT({i}, {o})", "added", pair=True, tags=("own conv",)),
    Form("own SAGE", "drawn_convs.OwnSAGE({i}, {o})", pair=True, tags=("own conv",)),
    Form("own GCN", "drawn_convs.OwnGCN({i}, {o})", "added", tags=("own conv",)),
    Form("own gate", "drawn_convs.Gated({i}, {o})", tags=("own conv",)),
    Form("own edge", "drawn_convs.ByEdge({i}, {o}, {d})", needs="attr", tags=("own conv",)),
    Form("own attention", "drawn_convs.Attended({i}, {o})", tags=("own conv",)),
    Form("stopped for some", "drawn_convs.StoppedForSome({i}, {o})", tags=("own conv", "stop")),
]
COMMON = [
    form for form in FORMS if form.name in {"GCN", "SAGE", "GraphConv", "GIN", "GAT", "GATv2", "Transformer", "GINE"}
]
