"""Sentiment trees: sentences of film reviews as trees of phrases, each with a label that people gave it. A human truth.

The Stanford Sentiment Treebank (Socher et al., EMNLP 2013) in Penn Treebank notation, a sentence a line:
`(3 (2 It) (4 (2 's) (4 lovely)))`. Labels run from 0, very negative, to 4, very positive; 2 is neutral. A sentence becomes a
graph whose nodes are its phrases, single words among them, and whose edges lead from a phrase to the one that it is part of.
The class is whether the sentence is positive; neutral sentences are left out. The truth of a sentence: edges from phrases
of its own polarity support it (1), edges from phrases of the other polarity oppose it (−1), edges from neutral ones do neither.

Words need vectors. They are learned from the classes of the training sentences alone (a bag of words): labels of phrases,
which are the truth, are in no feature.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv, global_add_pool

from edgewise.contract import checked
from edgewise.datasets.motifs import GraphMotifs
from edgewise.datasets.planted_data import fit
from edgewise.errors import FileError
from edgewise.files import VARIABLE, is_file

FOLDER, FILES = "SST/trees", ("train", "dev", "test")
NEUTRAL = 2
WIDTH, HIDDEN, NUM_LAYERS = 32, 32, 3
LEAST_COUNT = 2
"""A word that is rarer than this in the training sentences has the vector of unknown words."""
WORD_EPOCHS, WORD_BATCH, DECAY = 3, 64, 1e-4  # by the accuracy on `dev.txt`
_TOKEN = re.compile(r"\(([0-4])(?= )|[()]|[^ ()]+")  # a word may hold a space that does not break ("8 1/2")


@dataclass(frozen=True)
class Tree:
    """One sentence: its phrases in the order in which they open, so that number 0 is the sentence itself."""

    label: tuple[int, ...]
    """For each phrase, 0 to 4."""
    parent: tuple[int, ...]
    """For each phrase the number of the one that it is part of; −1 for the sentence."""
    word: tuple[str, ...]
    """For each phrase its word, if it is one; else empty."""


def parse_tree(line: str) -> Tree:
    """Read one line of the treebank.

    >>> parse_tree("(3 (2 It) (4 (2 's) (4 lovely)))")
    Tree(label=(3, 2, 4, 2, 4), parent=(-1, 0, 0, 2, 2), word=('', 'It', '', "'s", 'lovely'))
    """
    label: list[int] = []
    parent: list[int] = []
    word: list[str] = []
    open_: list[int] = []
    for found in _TOKEN.finditer(line):
        token, opened = found[0], found[1]
        if opened and (open_ or not label):
            parent.append(open_[-1] if open_ else -1)
            open_.append(len(label))
            label.append(int(opened))
            word.append("")
        elif token == ")" and open_:
            open_.pop()
        elif token not in "()" and open_ and not word[open_[-1]]:
            word[open_[-1]] = token
        else:
            raise _broken(line)
    if open_ or not label:
        raise _broken(line)
    return Tree(tuple(label), tuple(parent), tuple(word))


def _broken(line: str) -> FileError:
    return FileError(
        f"A line of the treebank must be a tree such as (3 (2 It) (4 (2 's) (4 lovely))), got {line[:60]!r}."
    )


def read_trees(folder: str | Path | None = None) -> dict[str, list[Tree]]:
    """The trees of `train.txt`, `dev.txt` and `test.txt`, by name.

    `folder` holds `SST/trees/`; without it, the variable EDGEWISE_DATA names it.
    """
    given = folder or os.environ.get(VARIABLE)
    where = Path(given or ".").expanduser() / FOLDER
    missing = [f"{name}.txt" for name in FILES if not is_file(where / f"{name}.txt")]
    if missing:
        raise FileError(
            f"There is no {missing[0]} in {where}. Put the sentiment treebank (train.txt, dev.txt, test.txt, a tree a line) "
            f"into DIR/{FOLDER}/ and set {VARIABLE}=DIR."
        )
    texts = {name: (where / f"{name}.txt").read_text(encoding="utf-8").split("\n") for name in FILES}
    return {name: [parse_tree(line) for line in lines if line.strip()] for name, lines in texts.items()}


# --- Graphs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordVectors:
    """A vector for every word that is frequent enough; number 0 is for all others, and for phrases of several words."""

    number: dict[str, int]
    vector: Tensor
    """`[words + 1, WIDTH]`; the first row is zero."""

    def of(self, tree: Tree) -> Tensor:
        """`[phrases, WIDTH]`: zero for unknown words and for phrases of several words."""
        return self.vector[[self.number.get(word.lower(), 0) for word in tree.word]]


def word_vectors(trees: list[Tree], seed: int) -> WordVectors:
    """Learn vectors of words from the classes of sentences: their mean is read by a linear map."""
    told = [tree for tree in trees if tree.label[0] != NEUTRAL]
    count = Counter(word.lower() for tree in told for word in tree.word if word)
    number = {word: row for row, word in enumerate((w for w, c in count.items() if c >= LEAST_COUNT), start=1)}
    bags = [torch.tensor([number.get(w.lower(), 0) for w in tree.word if w]) for tree in told]
    label = torch.tensor([int(tree.label[0] > NEUTRAL) for tree in told])

    def losses(model: nn.Module) -> Iterator[Tensor]:
        for part in torch.randperm(len(bags)).split(WORD_BATCH):
            some = [bags[i] for i in part.tolist()]
            start = torch.tensor([0, *(len(bag) for bag in some[:-1])]).cumsum(0)
            yield F.cross_entropy(model[1](model[0](torch.cat(some), start)), label[part])  # type: ignore[index]

    def make() -> nn.Module:
        return nn.Sequential(nn.EmbeddingBag(len(number) + 1, WIDTH, padding_idx=0), nn.Linear(WIDTH, 2))

    model = fit(make, losses, seed=seed, epochs=WORD_EPOCHS, last_lr=0.001, weight_decay=DECAY)
    return WordVectors(number, model.get_parameter("0.weight").detach().clone())


def as_graph(tree: Tree, vectors: WordVectors) -> Data:
    """A sentence as a graph: edges from phrases to the phrases they are part of, `phrase_label` `[N]`, names of nodes."""
    child = torch.arange(1, len(tree.label))
    edge_index = torch.stack([child, torch.tensor(tree.parent[1:], dtype=torch.long)])
    return Data(
        x=vectors.of(tree),
        edge_index=edge_index,
        y=torch.tensor([int(tree.label[0] > NEUTRAL)]),
        phrase_label=torch.tensor(tree.label),
        node_names=[word or f"phrase {number}" for number, word in enumerate(tree.word)],
    )


def phrase_truth(graph: Data) -> Tensor:
    """`[E]`: 1 for edges from phrases of the sentence's polarity, −1 for those of the other one, 0 for neutral ones.

    >>> line = parse_tree("(3 (2 It) (1 (2 's) (4 lovely)))")
    >>> phrase_truth(as_graph(line, WordVectors({}, torch.zeros(1, 2))))
    tensor([ 0, -1,  0,  1], dtype=torch.int8)
    """
    polarity = (graph.phrase_label - NEUTRAL).sign()
    return (polarity[graph.edge_index[0]] * polarity[0]).to(torch.int8)


class PhraseSums(nn.Module):
    """Sums over the parts of phrases, three layers deep; what all phrases say is added up and read by a linear map.

    The last layer does not read a node's own vector: every word speaks through at least one edge.
    """

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        sizes = [WIDTH, *[HIDDEN] * NUM_LAYERS]
        self.layers = nn.ModuleList(
            SAGEConv(sizes[i], sizes[i + 1], aggr="sum", root_weight=i < NUM_LAYERS - 1, bias=i < NUM_LAYERS - 1)
            for i in range(NUM_LAYERS)
        )
        self.head = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """`[graphs, classes]`: logits."""
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


@dataclass(frozen=True, eq=False, repr=False)
class SentimentTrees(GraphMotifs):
    """Sentences of `train.txt` and `test.txt` that are not neutral; those of the test file that have a truth are targets."""

    epochs: ClassVar[int] = 3

    def _make(self) -> nn.Module:
        return PhraseSums()


@checked
def sentiment_trees(seed: int = 0, *, folder: str | Path | None = None) -> SentimentTrees:
    """Read the sentiment treebank from `folder` (it holds `SST/trees/`); without it, from where EDGEWISE_DATA points.

    Args:
        seed: Random seed of the word vectors; the sentences are the same for every seed.
        folder: The folder of data sets.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:                  # a treebank of one sentence
    ...     inside = Path(root) / "SST" / "trees"
    ...     inside.mkdir(parents=True)
    ...     for name in ("train", "dev", "test"):
    ...         _ = (inside / f"{name}.txt").write_text("(4 (2 A) (4 (4 lovely) (2 film)))")
    ...     found = sentiment_trees(folder=root)
    >>> found.data[1].node_names, found.truth()[0].tolist()
    (['phrase 0', 'A', 'phrase 2', 'lovely', 'film'], [0, 1, 1, 0])
    """
    trees = read_trees(folder)
    vectors = word_vectors(trees["train"], seed)
    parts = [[tree for tree in trees[name] if tree.label[0] != NEUTRAL] for name in ("train", "test")]
    graphs = [as_graph(tree, vectors) for part in parts for tree in part]
    planted = tuple(phrase_truth(graph) for graph in graphs)
    training, test = torch.arange(len(graphs)).split([len(part) for part in parts])
    told = [number for number in test.tolist() if _is_told(planted[number])]
    return SentimentTrees("sentiment_trees", graphs, torch.tensor(told), seed, training, test, planted)


def _is_told(truth: Tensor) -> bool:
    """Whether some edges of a sentence support its class and others do not: else there is nothing to find."""
    return bool((truth > 0).any()) and not bool((truth > 0).all())
