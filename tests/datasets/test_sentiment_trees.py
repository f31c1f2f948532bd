"""Sentiment trees: how lines are read, what the truth of a phrase is, and that no label of a phrase gets into a feature."""

import pytest
import torch

import edgewise as ew
from edgewise.datasets.phrase_trees import FILES, FOLDER, parse_tree, read_trees
from missing import skip_or_fail
from places import data_root

LINES = (
    "(4 (2 A) (4 (4 lovely) (2 film)))",
    "(0 (2 A) (1 (1 dull) (2 film)))",
    "(2 (2 A) (2 film))",
    "(3 (1 (2 Not) (3 bad)) (2 .))",
    "(1 (3 (1 Not) (4 lovely)) (2 .))",
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / FOLDER).mkdir(parents=True)
    for name in FILES:
        (tmp_path / FOLDER / f"{name}.txt").write_text("\n".join(LINES * 4) + "\n", encoding="utf-8")
    return tmp_path


def test_a_sentence_is_a_tree_of_phrases_and_its_truth_is_their_polarity(folder):
    found = ew.datasets.sentiment_trees(folder=folder)
    assert len(found.data) == 2 * 4 * 4  # neutral sentences are left out
    fourth = found.data[int(found.targets[2])]
    assert fourth.node_names == ["phrase 0", "phrase 1", "Not", "bad", "."]
    assert fourth.edge_index.tolist() == [[1, 2, 3, 4], [0, 1, 1, 0]]
    assert fourth.phrase_label.tolist() == [3, 1, 2, 3, 2]
    assert found.truth([int(found.targets[2])])[0].tolist() == [-1, 0, 1, 0]
    assert int(fourth.y) == 1


def test_words_carry_vectors_and_phrases_none_whatever_their_labels(folder):
    before = ew.datasets.sentiment_trees(folder=folder)
    for name in FILES:
        file = folder / FOLDER / f"{name}.txt"
        file.write_text(file.read_text().replace("(4 lovely)", "(0 lovely)").replace("(1 dull)", "(4 dull)"))
    after = ew.datasets.sentiment_trees(folder=folder)
    assert all(torch.equal(a.x, b.x) for a, b in zip(before.data, after.data, strict=True))
    assert not any(torch.equal(before.truth([t])[0], after.truth([t])[0]) for t in (before.targets[:1].tolist()))
    first = before.data[0]
    assert bool((first.x[[0, 2]] == 0).all())
    assert bool(first.x[3].abs().sum() > 0)


def test_every_word_of_a_sentence_speaks_through_an_edge(folder):
    found = ew.datasets.sentiment_trees(folder=folder)
    model = found.train().model
    graph = found.data[0]
    batch = torch.zeros(graph.num_nodes, dtype=torch.long)
    without = model(graph.x, graph.edge_index[:, :0], batch)
    assert torch.equal(without, model(torch.zeros_like(graph.x), graph.edge_index[:, :0], batch))
    assert torch.equal(without[0], model.head.bias)


@pytest.mark.parametrize("line", ["", "(3 (2 It)", "(3 It))", "(7 It)", "(3 (2 a) (2 b)) (2 c)", "(3 It was)", "word"])
def test_lines_that_are_no_trees_are_refused(line):
    with pytest.raises(ew.FileError, match="must be a tree"):
        parse_tree(line)


def test_a_missing_file_is_named_with_the_place_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path))
    with pytest.raises(ew.FileError, match=r"no train\.txt in .*SST/trees.*EDGEWISE_DATA=DIR"):
        ew.datasets.load("sentiment_trees")


@pytest.mark.slow
def test_the_treebank_has_its_published_sizes():
    if not (data_root() / FOLDER).is_dir():
        skip_or_fail(f"no {FOLDER} in {data_root()}")
    found = read_trees(data_root())
    assert {name: len(trees) for name, trees in found.items()} == {"train": 8544, "dev": 1101, "test": 2210}
    assert sum(tree.label[0] != 2 for tree in found["test"]) == 1821
