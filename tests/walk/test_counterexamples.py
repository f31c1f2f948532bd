"""The counterexamples to Algorithm 1, as the page about them writes them, with the numbers that it states."""

import pytest

import doc_pages
import edgewise as ew
from draw_counterexamples import draw
from places import ROOT

A, B, D, U, V = range(5)


@pytest.fixture(scope="module")
def page():
    names = {}
    doc_pages.run(ROOT / "docs" / "why-algorithm-1-is-not-exact.md", names)
    return names


def case(page, name):
    """(model, data, options) of an example."""
    return {
        "width one": (page["signs"], page["pair"], {"index": 0, **page["number"]}),
        "width two": (page["crossing"], page["star"], {"index": V, **page["number"]}),
        "graph": (page["spread"], page["star"], page["whole"]),
    }[name]


BEST = {"width one": ((0, 1, 1, 0), 2.0), "width two": ((D, U, U, V), 3.0), "graph": ((D, U, U), 3.0)}
FOUND = {"width one": ((0, 1, 0, 0), 1.0), "width two": ((A, U, V, V), 2.0), "graph": ((A, U, V), 2.0)}


@pytest.mark.parametrize("name", BEST)
def test_algorithm_1_misses_the_best_walk(page, name):
    model, data, options = case(page, name)
    best, found = ew.walks(model, data, **options), ew.walks(model, data, search="dag", **options)
    assert (best[0].nodes, best[0].score) == BEST[name]
    assert (found[0].nodes, found[0].score) == FOUND[name]
    assert best.exact
    assert not found.exact
    assert found.upper_bound >= best[0].score
    assert ew.walks(model, data, search="exhaustive", **options)[0] == best[0]


@pytest.mark.parametrize("name", BEST)
def test_with_room_for_two_prefixes_it_is_found(page, name):
    model, data, options = case(page, name)
    assert ew.walks(model, data, search="dag", width=2, **options)[0].score == BEST[name][1]


def test_the_page_states_the_numbers_that_it_computes(page):
    assert (page["best"].nodes, page["best"].score) == BEST["width one"]
    assert (page["found"].nodes, page["found"].score) == FOUND["width one"]
    for name, best, found in (
        ("width two", "best_of_star", "found_in_star"),
        ("graph", "best_of_graph", "found_in_graph"),
    ):
        assert (page[best][0].nodes, page[best][0].score, page[best].value) == (*BEST[name], 7.0)
        assert (page[found][0].nodes, page[found][0].score) == FOUND[name]
    assert page["found_in_star"].upper_bound >= 3
    x, layers = page["pair"].x, page["signs"].convs
    first = layers[0](x, page["pair"].edge_index).relu()
    second = layers[1](first, page["pair"].edge_index).relu()
    assert (first.flatten().tolist(), second.flatten().tolist()) == ([0, 1], [1, 2])
    assert page["crossing"].convs[0](page["star"].x, page["star"].edge_index)[U].tolist() == [4, 3]


def test_the_walks_of_the_star_sum_to_its_number(page):
    model, data, options = case(page, "width two")
    found = ew.walks(model, data, k=99, sign="magnitude", **options)
    assert {walk.nodes: walk.score for walk in found} == {(D, U, U, V): 3.0, (A, U, V, V): 2.0, (B, U, V, V): 2.0}


def test_the_picture_is_drawn_from_the_page(tmp_path):
    draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
