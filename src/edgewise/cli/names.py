"""Names that help and completion offer. Plain texts, so that neither needs torch; a test compares them with the tables."""

from collections.abc import Callable

METHODS = (
    *("gradient", "positive_gradient", "occlusion", "gnn_explainer", "gnn_explainer_fast", "integrated_gradients"),
    *("lrp", "goat_walks", "eig_search", "shapley", "random", "full"),
)
PAGE_METHODS = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "random")
LEVELS = ("input", "layer")
TASKS = ("node", "graph")
MODES = ("multiclass", "binary", "regression")
NUMBERS = ("logit", "log_prob", "prob")
SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu", "exhaustive")
SIGNS = ("positive", "negative", "magnitude")
PLANTED = (
    *("infection", "negative_evidence", "negative_evidence_multiclass"),
    *("ba_shapes", "tree_cycles", "tree_grid", "ba_2motifs"),
)
REAL = ("Cora", "CiteSeer", "PubMed", "Cornell", "Texas", "Wisconsin", "MUTAG", "PROTEINS")


def completing(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What a shell offers for one name.

    >>> completing(("node", "graph"))("g")
    ['graph']
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.lower().startswith(incomplete.lower())]

    return complete


def completing_list(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What a shell offers for names with commas between them: the last one is completed.

    >>> completing_list(METHODS)("random,occ")
    ['random,occlusion']
    """

    def complete(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        return [",".join([*before, name]) for name in names if name.startswith(last) and name not in before]

    return complete
