"""A recommender: users, movies and ratings as tables, and why a movie is recommended to a user.

Every user likes one genre, which the model has to find out from the ratings. Run this file once: it writes a table for users,
one for movies and one for the ratings in each direction into the folder cinema, trains for a few seconds and writes
cinema_weights.pt. Then one command explains recommendations and makes a page:

    edgewise explain --model recommender:Recommender --weights cinema_weights.pt --data cinema --link rates:cinema_pairs.csv --without-itself --page cinema.html

In Python the same is a typed graph (`HeteroData`), see `main`.
"""  # noqa: E501 (a command is one line)

import csv
from pathlib import Path

import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv, HeteroConv

import edgewise as ew

USERS, MOVIES, GENRES = 40, 24, ("drama", "comedy", "horror", "western")
RATES, RATED_BY = ("user", "rates", "movie"), ("movie", "rated_by", "user")


class Recommender(torch.nn.Module):
    """Two layers over ratings in both directions, and a dot product: above 0 is a recommendation."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        kinds, widths = (RATES, RATED_BY), {"user": 1, "movie": len(GENRES)}
        first = {kind: GraphConv((widths[kind[0]], widths[kind[2]]), hidden, aggr="mean") for kind in kinds}
        self.first = HeteroConv(first)
        self.second = HeteroConv({kind: GraphConv(hidden, hidden, aggr="mean") for kind in kinds})

    def encode(self, x_dict: dict, edge_index_dict: dict, edge_weight_dict: dict) -> dict:
        """A vector for every user and every movie."""
        hidden = self.first(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
        hidden = {name: x.relu() for name, x in hidden.items()}
        return self.second(hidden, edge_index_dict, edge_weight_dict=edge_weight_dict)

    def decode(self, z_dict: dict, edge_label_index: torch.Tensor) -> torch.Tensor:
        """One logit for each pair of a user and a movie."""
        return (z_dict["user"][edge_label_index[0]] * z_dict["movie"][edge_label_index[1]]).sum(dim=-1)


def made_up() -> dict[str, torch.Tensor]:
    """Tastes, genres and ratings from −1 (hated) to 1 (loved): what is of a user's genre is loved."""
    taste, genre = torch.randint(len(GENRES), (USERS,)), torch.arange(MOVIES) % len(GENRES)
    seen = torch.rand(USERS, MOVIES) < 0.25
    user, movie = seen.nonzero(as_tuple=True)
    loved = taste[user] == genre[movie]
    rating = torch.where(loved, 0.6 + 0.4 * torch.rand(len(user)), -0.8 + 0.6 * torch.rand(len(user)))
    return {"taste": taste, "genre": genre, "age": torch.rand(USERS), "user": user, "movie": movie, "rating": rating}


def write_tables(told: dict[str, torch.Tensor], pairs: list[tuple[int, int]]) -> None:
    """A table for each node type and each edge type in cinema/, and the recommendations to explain."""
    folder = Path("cinema")
    folder.mkdir(exist_ok=True)
    write(folder / "nodes_user.csv", ["id", "age"], [[f"U{i}", float(age)] for i, age in enumerate(told["age"])])
    movies = [[f"M{i}", *map(int, torch.arange(len(GENRES)) == genre)] for i, genre in enumerate(told["genre"])]
    write(folder / "nodes_movie.csv", ["id", *GENRES], movies)
    rated = zip(*(told[name].tolist() for name in ("user", "movie", "rating")), strict=True)
    ratings = [[f"U{user}", f"M{movie}", f"{rating:.3f}"] for user, movie, rating in rated]
    write(folder / "edges_user__rates__movie.csv", ["source", "target", "weight"], ratings)
    back = [[movie, user, rating] for user, movie, rating in ratings]
    write(folder / "edges_movie__rated_by__user.csv", ["source", "target", "weight"], back)
    write(Path("cinema_pairs.csv"), ["source", "target"], [[f"U{user}", f"M{movie}"] for user, movie in pairs])


def write(path: Path, heads: list[str], rows: list[list]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heads, *rows])


def typed(told: dict[str, torch.Tensor]) -> HeteroData:
    """The graph of these tables."""
    data = HeteroData()
    data["user"].x, data["movie"].x = told["age"].view(-1, 1), torch.eye(len(GENRES))[told["genre"]]
    data[RATES].edge_index = torch.stack([told["user"], told["movie"]])
    data[RATED_BY].edge_index = data[RATES].edge_index.flip(0)
    data[RATES].edge_weight = data[RATED_BY].edge_weight = told["rating"]
    return data


def train(model: Recommender, data: HeteroData, told: dict[str, torch.Tensor]) -> None:
    """Learn to tell loved pairs from all others."""
    pairs = torch.cartesian_prod(torch.arange(USERS), torch.arange(MOVIES)).t()
    y = (told["taste"][pairs[0]] == told["genre"][pairs[1]]).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        z = model.encode(data.x_dict, data.edge_index_dict, data.edge_weight_dict)
        torch.nn.functional.binary_cross_entropy_with_logits(model.decode(z, pairs), y).backward()
        optimizer.step()


def main() -> tuple[ew.ExplanationSet, dict[str, torch.Tensor]]:
    """Tables and weights for the command, and recommendations explained in Python."""
    torch.manual_seed(0)
    told = made_up()
    pairs = [(user, int((told["genre"] == told["taste"][user]).nonzero()[user % 6])) for user in range(0, USERS, 4)]
    write_tables(told, pairs[:3])
    data, model = typed(told), Recommender()
    train(model, data, told)
    torch.save(model.state_dict(), "cinema_weights.pt")
    found = ew.explain(model, data, {RATES: pairs}, task="link", without_itself=True)
    for why in found[:4]:
        user, movie = why.index[1]
        best = next(one for one in why.top(20) if one.edge_type == RATED_BY and one.receiver[1] == user)
        other, rating = best.source[1], float(data[RATED_BY].edge_weight[best.column])
        genre = GENRES[told["genre"][other]]
        print(
            f"user {user} gets movie {movie} ({GENRES[told['genre'][movie]]}): rated movie {other} ({genre}) {rating:+.1f}"
        )
    return found, told


if __name__ == "__main__":
    main()
