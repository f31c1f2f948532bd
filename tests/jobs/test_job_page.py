"""The page of a job: every number on it is that of the explanations, and every target on it leads to its own."""

import re
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, HeteroConv, SAGEConv, global_add_pool

import browser
import edgewise as ew
from command_line import MINE, call, network, printed, ring, workshop
from edgewise.jobs import plan
from edgewise.jobs.summary.job_bins import bins_of_counts, bins_of_shares
from edgewise.jobs.summary.job_doubts import Doubts
from edgewise.jobs.summary.job_facts import explaining, facts_of

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The current folder is a user's, and shards are small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "MOST_TARGETS", 5)


def slow_size(scores):
    """From the definition: sort, add up, stop at 95 %."""
    sizes, total, count = sorted(scores.abs().tolist(), reverse=True), float(scores.abs().sum()), 0
    reached = 0.0
    while reached < 0.95 * total:
        reached += sizes[count]
        count += 1
    return count


@pytest.mark.parametrize(("method", "level"), [("gradient", "layer"), ("gradient", "input"), ("occlusion", "layer")])
def test_facts_are_those_of_each_explanation(method, level):
    data = ring(40, seed=3)
    job = ew.jobs.run(network(), data, index=[*range(3, 40), 0], out="job", method=method, level=level)
    facts = facts_of(job)
    edge_counts, node_counts = torch.zeros(data.num_edges), torch.zeros(40)
    assert facts.targets.position.tolist() == list(range(38))
    for at, why in enumerate(job):
        scores = why.scores.sum(dim=0) if level == "layer" else why.scores
        size = slow_size(scores)
        assert int(facts.targets.size[at]) == size
        chosen = scores.abs().argsort(descending=True)[:size]
        edge_counts[chosen] += 1
        node_counts[data.edge_index[:, chosen].unique()] += 1
        less = min(float(scores.clamp(min=0).sum()), float(-scores.clamp(max=0).sum()))
        assert float(facts.targets.against[at]) == pytest.approx(2 * less / float(scores.abs().sum()), abs=1e-6)
        rows = [scores_of + own for scores_of, own in zip(_sums(why.scores), _sums(why.self_scores), strict=True)]
        shares = [float(row) / why.value / (1 if level == "layer" or method != "gradient" else 2) for row in rows]
        worst = max(shares, key=lambda share: abs(share - 1))
        assert float(facts.targets.complete[at]) == pytest.approx(worst, rel=1e-4)
        assert int(facts.targets.target[at]) == why.target
    for counted, expected in ((facts.edges, edge_counts), (facts.nodes, node_counts)):
        found = torch.zeros_like(expected)
        found[counted[0]] = counted[1].to(found.dtype)
        assert torch.equal(found, expected)
        assert counted[1].tolist() == sorted(counted[1].tolist(), reverse=True)


def _sums(scores):
    return scores.reshape(-1, scores.size(-1)).double().sum(dim=1)


def test_explaining_edges_are_the_fewest_on_random_rows():
    draw = torch.Generator().manual_seed(0)
    row = torch.randint(0, 30, (400,), generator=draw).sort().values
    size = torch.rand(400, generator=draw, dtype=torch.double) ** 4
    total = torch.zeros(30, dtype=torch.double).index_add_(0, row, size)
    found = explaining(row, size, total)
    for one in range(30):
        chosen = found[row[found] == one]
        assert len(chosen) == slow_size(size[row == one])
        assert set(chosen.tolist()) <= set((row == one).nonzero().view(-1).tolist())


def test_bins_hold_every_value_once():
    draw = torch.Generator().manual_seed(1)
    values = torch.randn(500, generator=draw)
    assert sum(one.height for one in bins_of_shares(values, 0.0, 1.0)) == 500
    assert bins_of_shares(torch.tensor([0.0, 1.0]), 0.0, 1.0)[0].height == 1
    numbers = torch.randint(0, 300, (500,), generator=draw)
    assert sum(one.height for one in bins_of_counts(numbers)) == 500


def test_targets_with_most_doubts_come_first_and_say_why():
    data = ring(40, seed=3)
    job = ew.jobs.run(network(), data, out="job", level="layer")
    other = ew.jobs.run(network(), data, index=range(20), out="other", level="layer", method="occlusion")
    facts = facts_of(job, other)
    cosines = ew.similarity(
        ew.explain(network(), data, range(20), level="layer"),
        ew.explain(network(), data, range(20), level="layer", method="occlusion"),
    )
    assert torch.allclose(facts.targets.agreement[:20], cosines.double(), atol=1e-6)
    assert bool(facts.targets.agreement[20:].isnan().all())
    labels = facts.targets.target.clone()
    labels[7] = (labels[7] + 1) % 3
    doubts = Doubts.of(facts.targets, labels)
    assert doubts.label.nonzero().view(-1).tolist() == [7]
    assert f"the label is class {int(labels[7])}" in doubts.words(7, facts.targets, labels, [])
    each = torch.stack([doubts.disagreement, doubts.label, doubts.opposition, doubts.balance])
    noticed = (each >= 0.5).sum(dim=0)
    ranked = noticed[doubts.order()].tolist()
    assert ranked == sorted(ranked, reverse=True)


def test_a_page_counts_classes_and_leads_every_target_to_its_explanation():
    data = ring(40, seed=3)
    job = ew.jobs.run(network(), data, out="job", level="layer")
    names = ["</style><script>alert(1)</script>", "b", "c"]
    path = job.page("job.html", class_names=names, node_names={3: "<i>Ada"}, labels=data.y, first=7, other="job")
    text = path.read_text()
    assert "<script" not in text
    assert "&lt;/style&gt;" in text
    assert "<i>Ada" not in text
    assert not re.search(r"(?:src|href)=['\"](?!#)", text)  # nothing is loaded, links stay inside
    led, ids = re.findall(r"href='#(target-\d+)'", text), re.findall(r"id='(target-\d+)'", text)
    assert led == ids
    assert len(ids) == 7
    counts = torch.bincount(facts_of(job).targets.target).tolist()
    for name, count in zip(("b", "c"), counts[1:], strict=True):
        assert not count or f">{name}</th><td><i style='width:" in text
    strongest = job[int(ids[0].split("-")[1])].edge_scores().abs().max()
    assert f"{float(strongest):.3g}" in text


def test_a_job_that_is_not_done_has_a_page_and_failed_targets_are_on_it(monkeypatch):
    from edgewise.jobs import live_question

    explain = live_question.explain

    def failing(model, data, index, **options):
        if 7 in index:
            raise ew.ModelError("The model gave NaN.")
        if 12 in index:
            raise KeyboardInterrupt
        return explain(model, data, index, **options)

    monkeypatch.setattr(live_question, "explain", failing)
    with pytest.raises(KeyboardInterrupt):
        ew.jobs.run(network(), ring(20), out="job")
    text = ew.jobs.open("job").page("job.html").read_text()
    assert "9 nodes explained by gradient" in text
    assert "1 failed; 10 are not done yet" in text
    assert "ModelError: The model gave NaN.<small>node 7</small>" in text


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = GCN(3, 4, 2, 2)

    def forward(self, x, edge_index, batch):
        return global_add_pool(self.layers(x, edge_index), batch)


def test_graphs_of_their_own_have_no_frequent_edges_and_masks_no_completeness():
    graphs = [Data(x=torch.randn(5, 3), edge_index=torch.randint(5, (2, 9))) for _ in range(6)]
    torch.manual_seed(0)
    job = ew.jobs.run(Pooled().eval(), graphs, task="graph", out="job", method="gnn_explainer", epochs=2)
    text = job.page("job.html").read_text()
    assert "Every target has a graph of its own" in text
    assert "no shares of the explained number" in text
    assert "graph 0" in text or "graph 1" in text


def test_nodes_of_types_have_their_own_numbers_and_names():
    data, kind = HeteroData(), ("user", "rates", "movie")
    data["user"].x, data["movie"].x = torch.randn(6, 3), torch.randn(4, 3)
    data[kind].edge_index = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 0, 1]])
    torch.manual_seed(0)
    back = ("movie", "rated by", "user")
    data[back].edge_index = torch.tensor([[3], [0]])
    model = HeteroConv({kind: SAGEConv(3, 2), back: SAGEConv(3, 2)})
    job = ew.jobs.run(
        model,
        data,
        index=("movie", [0, 1]),
        out="job",
        forward=lambda model, data: model(data.x_dict, data.edge_index_dict),
    )
    text = job.page("job.html", node_names={"movie": ["Metropolis", "M", "Vertigo", "Ran"]}).read_text()
    assert "movie Metropolis" in text
    assert "user 4 → movie Metropolis (rates)" in text
    circles = set(re.findall(r"font-size='\d+'>([^<]*)</text>", text))
    assert circles == {"0", "1", "4", "5"}  # numbers in the type, not in the union of the types
    with pytest.raises(ew.InputError, match=r"mapping \{node type: names\}"):
        job.page("job.html", node_names=["a"])


def test_what_does_not_fit_is_refused():
    job = ew.jobs.run(network(), ring(), out="job")
    ew.jobs.run(network(), ring(), out="layers", level="layer")
    with pytest.raises(ew.InputError, match="a job at the same level, 'input'"):
        job.page("job.html", other="layers")
    with pytest.raises(ew.InputError, match="`labels` must hold a class for every node or graph, 12 or more"):
        job.page("job.html", labels=[1, 2])
    with pytest.raises(ew.InputError, match="`class_names` must be"):
        job.page("job.html", class_names="abc")
    with pytest.raises(ew.FileError, match="in a folder that exists"):
        job.page("nowhere/job.html")
    assert not Path("job.html").exists()


def test_the_command_writes_the_page_with_the_names_of_the_data(tmp_path):
    workshop(tmp_path)
    call("job", "run", *MINE, "--quiet", "--out", "job")
    assert "Written: job.html" in call("page", "job").stdout
    assert "12 nodes explained" in Path("job.html").read_text()
    assert printed("page", "job", "--out", "other.html", "--first", 2)["page"] == "other.html"
    assert Path("other.html").read_text().count("class='own'") == 2
    Path("graph.npz").unlink()
    assert "Without names" in call("page", "job").stderr
    assert "not the folder of a job" in call("page", "nothing", code=1).stderr


@pytest.mark.slow
@pytest.mark.parametrize("width", [1366, 1920, 390])
def test_in_a_browser_nothing_sticks_out_and_a_link_leads_to_its_target(tmp_path, width):
    job = ew.jobs.run(network(), ring(40, seed=3), out="job", level="layer")
    path = job.page(
        tmp_path / "job.html", other="job", node_names={node: f"a long name of node {node}" for node in range(40)}
    )
    with browser.chromium() as chromium:
        page, asked = chromium.new_page(viewport={"width": width, "height": 800}), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        link = page.locator("#first a").nth(3)
        wanted = link.get_attribute("href")
        link.click()
        box = page.locator(wanted).bounding_box()
        assert 0 <= box["y"] < 800
        assert asked == [path.as_uri()]


def test_the_page_may_load_nothing_and_run_nothing():
    ew.jobs.run(network(), ring(40, seed=3), index=[3, 4], out="job").page("job.html")
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', Path("job.html").read_text())[
        1
    ]
    assert policy.startswith("default-src 'none'; ")
    assert "script" not in policy
