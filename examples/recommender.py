"""A recommender: users, movies and ratings as tables, and why a movie is recommended to a user.

Every user likes one genre, which the model has to find out from the ratings. Run this file once: it writes the tables into the
folder cinema, trains for a few seconds and writes cinema_weights.pt. Then one command explains recommendations and makes a page:

    edgewise explain --model recommender:Recommender --weights cinema_weights.pt --data cinema --link cinema_pairs.csv --without-itself --page cinema.html

Below, the same as a typed graph (`HeteroData`), in Python.
"""  # noqa: E501 (a command is one line)

import csv
from pathlib import Path

import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv, HeteroConv

import edgewise as ew

USERS, MOVIES, GENRES = 40, 24, ("drama", "comedy", "horror", "western")
WIDTH = len(GENRES) + 2  # genre, age, whether it is a user
RATES, RATED_BY = ("user", "rates", "movie"), ("movie", "rated_by", "user")


class Recommender(torch.nn.Module):
    """Two layers over ratings in both directions, and a dot product: above 0 is a recommendation."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.first, self.second = GraphConv(WIDTH, hidden, aggr="mean"), GraphConv(hidden, hidden, aggr="mean")

    def encode(self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:
        """A vector for every user and movie."""
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    def decode(self, z: torch.Tensor, edge_label_index: torch.Tensor) -> torch.Tensor:
        """One logit for each pair."""
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


class TypedRecommender(torch.nn.Module):
    """The same with weights of their own for each direction."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        kinds, widths = (RATES, RATED_BY), {"user": 1, "movie": len(GENRES)}
        first = {kind: GraphConv((widths[kind[0]], widths[kind[2]]), hidden, aggr="mean") for kind in kinds}
        self.first = HeteroConv(first)
        self.second = HeteroConv({kind: GraphConv(hidden, hidden, aggr="mean") for kind in kinds})

    def forward(self, x_dict: dict, edge_index_dict: dict, edge_weight_dict: dict, edge_label_index: torch.Tensor):
        """One logit for each pair of a user and a movie."""
        hidden = self.first(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
        hidden = {name: x.relu() for name, x in hidden.items()}
        z = self.second(hidden, edge_index_dict, edge_weight_dict=edge_weight_dict)
        return (z["user"][edge_label_index[0]] * z["movie"][edge_label_index[1]]).sum(dim=-1)


def made_up() -> dict[str, torch.Tensor]:
    """Tastes, genres and ratings from −1 (hated) to 1 (loved): what is of a user's genre is loved."""
    taste, genre = torch.randint(len(GENRES), (USERS,)), torch.arange(MOVIES) % len(GENRES)
    seen = torch.rand(USERS, MOVIES) < 0.25
    user, movie = seen.nonzero(as_tuple=True)
    loved = taste[user] == genre[movie]
    rating = torch.where(loved, 0.6 + 0.4 * torch.rand(len(user)), -0.8 + 0.6 * torch.rand(len(user)))
    return {"taste": taste, "genre": genre, "age": torch.rand(USERS), "user": user, "movie": movie, "rating": rating}


def write_tables(told: dict[str, torch.Tensor], pairs: list[tuple[int, int]]) -> None:
    """cinema/nodes.csv, cinema/edges.csv (each rating in both directions) and the recommendations to explain."""
    folder = Path("cinema")
    folder.mkdir(exist_ok=True)
    users = [[f"U{i}", *[0.0] * len(GENRES), float(age), 1] for i, age in enumerate(told["age"])]
    movies = [[f"M{i}", *map(int, torch.arange(len(GENRES)) == g), 0.0, 0] for i, g in enumerate(told["genre"])]
    write(folder / "nodes.csv", ["id", *GENRES, "age", "user"], users + movies)
    ratings = list(zip(*(told[name].tolist() for name in ("user", "movie", "rating")), strict=True))
    there = [[f"U{user}", f"M{movie}", f"{rating:.3f}"] for user, movie, rating in ratings]
    write(folder / "edges.csv", ["source", "target", "weight"], there + [[m, u, r] for u, m, r in there])
    write(Path("cinema_pairs.csv"), ["source", "target"], [[f"U{user}", f"M{movie}"] for user, movie in pairs])


def write(path: Path, heads: list[str], rows: list[list]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heads, *rows])


def typed(told: dict[str, torch.Tensor]) -> HeteroData:
    """The same as a typed graph."""
    data = HeteroData()
    data["user"].x, data["movie"].x = told["age"].view(-1, 1), torch.eye(len(GENRES))[told["genre"]]
    data[RATES].edge_index = torch.stack([told["user"], told["movie"]])
    data[RATED_BY].edge_index = data[RATES].edge_index.flip(0)
    data[RATES].edge_weight = data[RATED_BY].edge_weight = told["rating"]
    return data


def train(model: torch.nn.Module, score, told: dict[str, torch.Tensor]) -> None:
    """Learn to tell loved pairs from all others."""
    user, movie = torch.cartesian_prod(torch.arange(USERS), torch.arange(MOVIES)).t()
    y = (told["taste"][user] == told["genre"][movie]).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(score(torch.stack([user, movie])), y).backward()
        optimizer.step()


def main() -> tuple[ew.ExplanationSet, dict[str, torch.Tensor]]:
    """Tables and weights for the command, and recommendations explained in Python."""
    torch.manual_seed(0)
    told = made_up()
    pairs = [(user, int((told["genre"] == told["taste"][user]).nonzero()[user % 6])) for user in range(0, USERS, 4)]
    write_tables(told, pairs[:3])
    x = torch.cat([torch.zeros(USERS, WIDTH), torch.zeros(MOVIES, WIDTH)])
    x[:USERS, -2], x[:USERS, -1] = told["age"], 1.0
    x[USERS:, : len(GENRES)] = torch.eye(len(GENRES))[told["genre"]]
    ends = torch.stack([told["user"], told["movie"] + USERS])
    edges, weight = torch.cat([ends, ends.flip(0)], dim=1), told["rating"].repeat(2)
    plain = Recommender()
    train(plain, lambda pair: plain.decode(plain.encode(x, edges, weight), pair + torch.tensor([[0], [USERS]])), told)
    torch.save(plain.state_dict(), "cinema_weights.pt")

    data, model = typed(told), TypedRecommender()
    given = (data.x_dict, data.edge_index_dict, data.edge_weight_dict)
    train(model, lambda pair: model(*given, pair), told)
    found = ew.explain(model, data, {RATES: pairs}, task="link", without_itself=True)
    for why in found[:4]:
        user, movie = why.index[1]
        _, (_, other), _, column, kind = next(one for one in why.top(20) if one[4] == RATED_BY and one[2][1] == user)
        rating, genre = float(data[kind].edge_weight[column]), GENRES[told["genre"][other]]
        print(
            f"user {user} gets movie {movie} ({GENRES[told['genre'][movie]]}): rated movie {other} ({genre}) {rating:+.1f}"
        )
    return found, told


if __name__ == "__main__":
    main()
