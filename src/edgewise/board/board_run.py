"""A run of the leaderboard: networks are trained and measured, here or by processes, and every line is kept as it is made."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise import datasets
from edgewise.board.board_folder import BoardFolder, network_name
from edgewise.board.entrants import Entrant, digest, fingerprint
from edgewise.board.measures import ORDERS, measured
from edgewise.board.trained_network import BoardNetwork, make_network
from edgewise.errors import EdgewiseError
from edgewise.jobs.passage import Passage
from edgewise.jobs.plan import Shard
from edgewise.jobs.shard_run import ShardEngine
from edgewise.random_numbers import one_thread
from edgewise.text import for_json


@dataclass(frozen=True)
class Planned:
    """One network that is asked for."""

    data: str
    seed: int
    data_key: str

    @property
    def name(self) -> str:
        """Of its journal."""
        return network_name(self.data, self.seed)


def plan_networks(counts: dict[str, int]) -> list[Planned]:
    """Networks 0, 1, … of each data set, by turns, so that a run that is stopped has some of each."""
    keys = {name: data_key(name) for name in counts}
    most = max(counts.values(), default=0)
    return [
        Planned(name, seed, keys[name]) for seed in range(most) for name, count in counts.items() if seed < count
    ]  # fmt: skip


def data_key(name: str) -> str:
    """A key of a data set: its name, or of one that was registered, its code."""
    own = datasets.registered().get(name)
    return digest(name, fingerprint(own) if own else "")


@dataclass(frozen=True, eq=False)
class BoardRun:
    """What is asked of a leaderboard."""

    folder: BoardFolder
    networks: Sequence[Planned]
    entrants: Sequence[Entrant]
    targets: int

    def missing(self, planned: Planned) -> list[Entrant]:
        """The entrants that a network has no line for."""
        known = {line.get("key") for line in self.folder.lines(planned.name, planned.data_key)}
        return [one for one in self.entrants if one.key not in known]

    def lines(self) -> list[dict[str, Any]]:
        """The lines of all networks and entrants that are asked for: data set by data set, in the order of the entrants."""
        place = {one.key: number for number, one in enumerate(self.entrants)}
        found: dict[tuple[str, int, int], dict[str, Any]] = {}
        for planned in sorted(self.networks, key=lambda one: one.seed):
            for line in self.folder.lines(planned.name, planned.data_key):
                if line["key"] in place:
                    found[planned.data, planned.seed, place[line["key"]]] = line
        data = list(dict.fromkeys(planned.data for planned in self.networks))
        order = sorted(found, key=lambda key: (data.index(key[0]), *key[1:]))
        return [{**found[key], "method": self.entrants[key[2]].label} for key in order]

    def run(self, engine: ShardEngine, tell: Callable[[str], Any]) -> None:
        """Measure what is missing; `tell` hears the name of each network that is finished."""
        shards = [
            Shard(planned.name, place, place + 1)
            for place, planned in enumerate(self.networks)
            if self.missing(planned)
        ]

        def forked() -> Callable[[Shard], dict[str, Any]]:
            self.folder.leave()
            return self._do

        for shard, _ in engine.run(shards, self._do, Passage("fork", forked)):
            tell(shard.name)

    def _do(self, shard: Shard) -> dict[str, Any]:
        """Train a network, and measure every entrant that is missing."""
        planned = self.networks[shard.begin]
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network = make_network(planned.data, planned.seed, self.targets)
            journal = self.folder.journal(planned.name)
            for entrant in self.missing(planned):
                line, seconds = _line(planned, network, entrant)
                if seconds is not None:
                    self.folder.times(planned.name).add(key=entrant.key, seconds=seconds)
                journal.add(**line)
        return {}


def _line(planned: Planned, network: BoardNetwork, entrant: Entrant) -> tuple[dict[str, Any], float | None]:
    """One entrant on one network: its numbers, or why it refused; and the seconds for a target."""
    story = {
        "data": planned.data,
        "seed": planned.seed,
        "data_key": planned.data_key,
        "accuracy": network.accuracy,
        "index": list(network.index),
        "method": entrant.label,
        "kind": entrant.kind,
        "key": entrant.key,
    }
    start = time.perf_counter()
    try:
        answer = entrant.answer(network.ask, network.seed)
        seconds = (time.perf_counter() - start) / len(network.index)
        orders = ORDERS if answer.walks is None else ORDERS[:1]
        values = {order: measured(network, answer, order) for order in orders}
    except EdgewiseError as error:
        return {**story, "refused": str(error)}, None
    except Exception as error:  # of PyG, or of somebody's own method: the others go on
        return {**story, "refused": f"{type(error).__name__}: {error}"}, None
    found: dict[str, Any] = for_json({**story, "values": values})
    return found, seconds
