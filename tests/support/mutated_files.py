"""Files of every kind that are read, mutated at random: each is read right, or refused by an error of ours, and does no harm.

    python tests/support/mutated_files.py FOLDER FILES SEED [KIND ...]

Every file is read in a child process that is watched: whatever it opens to write, renames or removes outside its folder,
whatever program it starts, every exception that is not ours, more than 300 MB above what the process had, and more than
20 seconds are findings. Prints one JSON document; the exit code is 1 if there are findings.
"""

import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import altered_files
import edgewise as ew
from edgewise.board.board import Board
from edgewise.board.board_folder import BoardFolder
from edgewise.cli.output import claim_result, write_manifest
from edgewise.cli.read.data import read_data
from edgewise.cli.read.trained_model import read_weights
from edgewise.inner_paths import inside
from edgewise.results.walk_storage import load_walks, save_walks
from edgewise.store import manifest
from edgewise.store.array_files import digest_of_array
from edgewise_paper.store import Store
from small_disks import memory_of

MOST_MEMORY, MOST_SECONDS, BATCH = 300e6, 20, 50
NODES = 30


def graph() -> Data:
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, 3 * NODES), generator=draw)
    x = torch.randn(NODES, 3, generator=draw, dtype=torch.float32)
    return Data(x=x, edge_index=edges, y=torch.arange(NODES) % 3)


def model() -> GCN:
    torch.manual_seed(0)
    return GCN(3, 4, 2, 3).float().eval()


# Kinds: how a folder of files is made once, and how it is read #########################################################


def looked_at(found: Any) -> None:
    for why in found:
        why.top(3)
        repr(why)


def tables(folder: Path, ending: str) -> None:
    data = graph()
    nodes = {"id": [f"n{i}" for i in range(NODES)], **{f"f{c}": data.x[:, c].tolist() for c in range(3)}}
    nodes["y"] = data.y.tolist()
    ends = {
        name: [f"n{i}" for i in row.tolist()] for name, row in zip(("source", "target"), data.edge_index, strict=True)
    }
    for name, columns in (("nodes", nodes), ("edges", ends)):
        if ending == ".parquet":
            import pyarrow
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
        else:
            rows = "\n".join(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))
            (folder / f"{name}.csv").write_text(",".join(columns) + "\n" + rows + "\n")


def arrays(folder: Path) -> None:
    data = graph()
    names = np.array([f"n{i}" for i in range(NODES)])
    np.savez_compressed(
        folder / "graph.npz", x=data.x.numpy(), edge_index=data.edge_index.numpy(), y=data.y.numpy(), names=names
    )


def a_job(folder: Path) -> None:
    ew.jobs.run(model(), graph(), index=range(12), out=folder / "job", top=4)


def open_job(folder: Path) -> None:
    job = ew.jobs.open(folder / "job")
    repr(job)
    looked_at(job)
    job.to_frame()


def run_job(folder: Path) -> None:
    a_job(folder)
    assert ew.jobs.open(folder / "job").status.done == 12


def a_store(folder: Path) -> None:
    ew.GraphStore.build(folder / "store", graph(), names=[f"n{i}" for i in range(NODES)], both_ways=True)


def sign_store(folder: Path) -> None:
    """Digests that fit what is in it, as a forger computes them; of a manifest that cannot be read, none."""
    path = folder / "manifest.json"
    try:
        said = json.loads(path.read_text())
        for table in (*said["nodes"], *said["edges"]):
            for record in (*table["structure"].values(), *table["attributes"].values()):
                record["digest"] = digest_of_array(inside(folder, record["file"]))
        tables = manifest._tables(said["nodes"]), manifest._tables(said["edges"])
        said["digest"] = manifest.Manifest(said["typed"], *tables, said["notes"]).digest
    except Exception:  # whatever a mutation has made of it
        return
    path.write_text(json.dumps(said))


def open_store(folder: Path) -> None:
    sign_store(folder / "store")
    store = ew.GraphStore(folder / "store")
    list(store.names()), store.names().repeated()
    store.names()[3], store.node("n4")
    looked_at(ew.explain(model(), store, [1, 2]))
    store.data.to_dict()


def a_board(folder: Path) -> None:
    ew.leaderboard(folder / "board", data=["negative_evidence"], methods=["gradient"], networks=2, targets=2)


def read_board(folder: Path) -> None:
    repr(Board.read(folder / "board" / "results.parquet"))


def open_board(folder: Path) -> None:
    with BoardFolder(folder / "board", 2) as board:
        lines = [line for name in ("negative_evidence-0000", "negative_evidence-0001") for line in board.journal(name)]
        keys = {str(line.get("data_key")) for line in lines}
        found = [
            line
            for key in keys
            for name in ("negative_evidence-0000", "negative_evidence-0001")
            for line in board.lines(name, key)
        ]
    for data in (board := Board(found)).data:
        board.table(data)


def saved_walks(folder: Path) -> None:
    save_walks(ew.walks(model(), graph(), [1, 2, 3], k=3), folder / "walks.npz")


def a_cache(folder: Path) -> None:
    store = Store(folder)
    store.keep_tensors("models", "key", {"weight": torch.ones(3, 4), "epoch": 3})
    store.keep_explanations("key", altered_files.result("node"))


def read_cache(folder: Path) -> None:
    store = Store(folder)
    store.tensors("models", "key")
    store.explanations("key")


def a_result(kind: str, ending: str) -> tuple[Callable[[Path], None], Callable[[Path], None]]:
    def make(folder: Path) -> None:
        altered_files.result(kind).save(folder / f"why{ending}")

    return make, lambda folder: looked_at(ew.load(folder / f"why{ending}"))


def to_store(name: str) -> Callable[[Path], None]:
    return lambda folder: open_built(ew.GraphStore.build(folder / "built", folder / name))


def open_built(store: ew.GraphStore) -> None:
    repr(store)
    shutil.rmtree(store.path)


def as_data(name: str) -> Callable[[Path], None]:
    return lambda folder: repr(read_data(str(folder / name), None, None, 0))


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "result .npz": a_result("node", ".npz"),
    "result by layer .npz": a_result("shapley", ".npz"),
    "result of a typed graph .npz": a_result("typed", ".npz"),
    "result .parquet": a_result("layer", ".parquet"),
    "result of links .parquet": a_result("link", ".parquet"),
    "features .npz": a_result("feature", ".npz"),
    "walks .npz": (saved_walks, lambda folder: load_walks(folder / "walks.npz")),
    "data .npz": (arrays, as_data("graph.npz")),
    "data .npz to a store": (arrays, to_store("graph.npz")),
    "data .pt": (lambda folder: torch.save(graph(), folder / "graph.pt"), as_data("graph.pt")),
    "data .pt to a store": (lambda folder: torch.save(graph(), folder / "graph.pt"), to_store("graph.pt")),
    "data .csv": (lambda folder: tables(folder, ".csv"), as_data("")),
    "data .csv to a store": (lambda folder: tables(folder, ".csv"), to_store("")),
    "data .parquet": (lambda folder: tables(folder, ".parquet"), as_data("")),
    "data .parquet to a store": (lambda folder: tables(folder, ".parquet"), to_store("")),
    "weights .pt": (
        lambda folder: torch.save({"state_dict": model().state_dict(), "epoch": 3}, folder / "weights.pt"),
        lambda folder: read_weights(folder / "weights.pt"),
    ),
    "weights .safetensors": (
        lambda folder: safetensors(folder / "weights.safetensors"),
        lambda folder: read_weights(folder / "weights.safetensors"),
    ),
    "store": (a_store, open_store),
    "job that is read": (a_job, open_job),
    "job that goes on": (a_job, run_job),
    "leaderboard": (a_board, open_board),
    "results of a leaderboard": (a_board, read_board),
    "manifest of a result": (
        lambda folder: write_manifest(
            folder / "why.json", {"format": "edgewise-manifest-1", "files": {"a": "why.npz"}}
        ),
        lambda folder: claim_result(folder / "why.npz", [], force=False),
    ),
    "cache of the paper's experiments": (a_cache, read_cache),
}


def safetensors(path: Path) -> None:
    from safetensors.torch import save_file

    save_file(model().state_dict(), path)


# Mutations ############################################################################################################

NUMBERS = (0, 1, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
LIES = (
    None,
    True,
    -1,
    0,
    10**12,
    1e308,
    float("nan"),
    "",
    "../../secret",
    "/etc/passwd",
    "a\0b",
    "x" * 3000,
    [],
    {},
    [[[]]],
    {"tuple": [0, 99]},
)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A file that differs a little, in a way that goes with its kind or in bytes."""
    if data[:2] == b"PK" and draw.random() < 0.6:
        return mutated_archive(data, draw)
    if data[:1] in b"{[" and draw.random() < 0.6:
        try:
            return mutated_json(data, draw)
        except ValueError:
            pass
    for _ in range(draw.choice((1, 1, 2, 5))):
        data = mutated_bytes(data, draw)
    return data


def mutated_archive(data: bytes, draw: random.Random) -> bytes:
    """One member of an archive, with a checksum that fits."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", draw.choice((0, 8))) as new:
        names = old.namelist()
        chosen = draw.choice(names)
        for name in names:
            content = old.read(name)
            if name == chosen:
                name = draw.choice((name, name, name, f"../{name}", "/etc/passwd", name[:-3], draw.choice(names)))
                content = draw.choice(
                    (content, b"", mutated_bytes(content, draw), mutated_bytes(content[:150], draw) + content[150:])
                )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of two members of one name
                new.writestr(name, content)
    return out.getvalue()


def mutated_json(data: bytes, draw: random.Random) -> bytes:
    """One value, or one name, in one of its lines."""
    lines = data.split(b"\n") if data.count(b"\n{") else [data]
    place = draw.randrange(len(lines))
    said = json.loads(lines[place] or b"{}")
    spots: list[tuple[Any, Any]] = []

    def collect(found: Any) -> None:
        for key, value in list(found.items() if isinstance(found, dict) else enumerate(found)):
            spots.append((found, key))
            if isinstance(value, (dict, list)):
                collect(value)

    collect(said)
    if spots:
        table, key = draw.choice(spots)
        if isinstance(table, dict) and draw.random() < 0.2:
            table[draw.choice(("x", "../x", "", "tuple"))] = table.pop(key)
        else:
            table[key] = draw.choice((*LIES, table[draw.choice(list(table))] if isinstance(table, dict) else LIES[0]))
    lines[place] = json.dumps(said).encode()
    return b"\n".join(lines)


def mutated_bytes(data: bytes, draw: random.Random) -> bytes:
    found, place, size = bytearray(data), draw.randrange(len(data) + 1), draw.choice((1, 4, 8, 40, 400))
    width = draw.choice((2, 4, 8))
    number = (draw.choice(NUMBERS) % 256**width).to_bytes(width, draw.choice(("little", "big")))
    there = found[place : place + size]
    ways: list[Callable[[], bytes]] = [
        lambda: bytes(found[:place]),
        lambda: bytes(found[:place] + draw.randbytes(size) + found[place + size :]),
        lambda: bytes(
            found[:place]
            + draw.choice((draw.randbytes(size), there, b"\n", b",", bytes(size), b"(" * size))
            + found[place:]
        ),
        lambda: bytes(found[:place] + found[place + size :]),
        lambda: bytes(found[:place] + number + found[place + width :]),
        lambda: bytes(found[:place] + bytes(len(there)) + found[place + size :]),
        lambda: bytes(
            found[:place] + bytes(byte ^ (1 << draw.randrange(8)) for byte in there[:1]) + found[place + 1 :]
        ),
        lambda: other_number(bytes(found), draw),
    ]
    return draw.choice(ways)()


def other_number(data: bytes, draw: random.Random) -> bytes:
    """A number in a text, or what looks like one."""
    digits = list(re.finditer(rb"-?\d+", data[:20000]))
    if not digits:
        return data
    spot = draw.choice(digits)
    number = draw.choice((b"-1", b"0", b"9" * 18, b"1e400", b"nan", b"9" * 5000, b"1000000000000"))
    return data[: spot.start()] + number + data[spot.end() :]


# Watching #############################################################################################################


AT = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink")
"""Events that end with the folders that relative paths start from."""
CHANGES = (*AT, "os.truncate", "os.chmod", "shutil.rmtree")


class Watch:
    """What a process does to the world, by Python's audit events; `begin` makes it strict."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.harm, self.strict = str(folder.resolve().parent / "place"), Counter[str](), False
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.strict:
            return
        if event in (
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "subprocess.Popen",
            "os.fork",
            "socket.connect",
            "ctypes.dlopen",
        ):
            self.harm[event] += 1
        elif event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, bytes)) and path != os.devnull and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.inside(event, path)
        elif event in CHANGES:
            places = [arguments[0]] if event not in ("os.rename", "os.link") else list(arguments[:2])
            folders = arguments[-len(places) :] if event in AT else [-1] * len(places)
            for path, folder in zip(places, folders, strict=True):
                if isinstance(path, (str, bytes, Path)):
                    within = os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) and folder >= 0 else ""
                    self.inside(event, os.path.join(within, os.fsdecode(path)))

    def inside(self, event: str, path: Any) -> None:
        whole = os.path.abspath(os.fsdecode(path))  # a file without a name is opened by that of its folder
        where = os.path.realpath(whole if whole == self.folder else os.path.dirname(whole))
        if not f"{where}/".startswith(f"{self.folder}/"):
            self.harm[f"{event} {os.fsdecode(path)}"] += 1


def child(pristine: Path, folder: Path, kind: str, seeds: range, root: int, pipe: int) -> None:
    """Mutate and read some files in this process; findings go through the pipe as lines."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TMPDIR"] = str(folder)
    watch, read = Watch(folder), KINDS[kind][1]
    for seed in seeds:
        draw = random.Random(f"{root} {kind} {seed}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(pristine, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
        chosen = draw.choice(files)
        before = chosen.read_bytes()
        chosen.write_bytes(mutated(before, draw))
        told: dict[str, Any] = {"seed": seed, "file": chosen.name, "outcome": "read"}
        Path("/proc/self/clear_refs").write_text("5")
        memory, begun = memory_of("VmRSS"), time.monotonic()
        signal.alarm(MOST_SECONDS + 10)
        watch.strict = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(folder)
        except ew.EdgewiseError as error:
            told["outcome"] = "refused"
            str(error)
        except BaseException as error:
            told |= {
                "outcome": "foreign",
                "error": f"{type(error).__name__}: {str(error)[:200]}",
                "trace": traceback.format_exc()[-1500:],
            }
        watch.strict = False
        signal.alarm(0)
        told |= {"seconds": round(time.monotonic() - begun, 2), "memory": memory_of("VmHWM") - memory}
        if watch.harm:
            told |= {"harm": dict(watch.harm)}
            watch.harm.clear()
        os.write(pipe, json.dumps(told).encode() + b"\n")


def try_kind(folder: Path, kind: str, count: int, root: int) -> dict[str, Any]:
    """Many mutated files of a kind: how many were read and refused, and what was found."""
    pristine, place = folder / "pristine", folder / "place"
    shutil.rmtree(folder, ignore_errors=True)
    pristine.mkdir(parents=True)
    secret = folder / "secret"
    secret.write_text("precious")
    KINDS[kind][0](pristine)
    shutil.copytree(pristine, place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind][1](place)  # the honest one is read
    counts: Counter[str] = Counter()
    findings: list[dict[str, Any]] = []
    most, slowest, done = 0, 0.0, 0
    while done < count:
        read, write = os.pipe()
        begin = done
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            process = os.fork()
        if process == 0:
            try:
                child(pristine, place, kind, range(begin, min(begin + BATCH, count)), root, write)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            for line in pipe:
                told = json.loads(line)
                done += 1
                counts[told["outcome"]] += 1
                most, slowest = max(most, told["memory"]), max(slowest, told["seconds"])
                bad = told["outcome"] == "foreign" or told.get("harm")
                if bad or told["memory"] > MOST_MEMORY or told["seconds"] > MOST_SECONDS:
                    findings.append({"kind": kind, **told})
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code or done == begin:
            findings.append({"kind": kind, "seed": done, "outcome": f"the process ended with {code}"})
            counts["ended"] += 1
            done += 1
    assert secret.read_text() == "precious"
    assert sorted(path.name for path in folder.iterdir()) == ["place", "pristine", "secret"]
    shutil.rmtree(folder)
    return {**counts, "most MB": round(most / 1e6), "slowest s": slowest, "findings": findings}


def try_all(folder: Path, count: int, root: int, kinds: list[str]) -> dict[str, Any]:
    """The same number of files of each kind."""
    found = {
        kind: try_kind(folder / f"kind{place}", kind, -(-count // len(kinds)), root) for place, kind in enumerate(kinds)
    }
    findings = [one for told in found.values() for one in told.pop("findings")]
    total = sum(
        told.get("read", 0) + told.get("refused", 0) + told.get("foreign", 0) + told.get("ended", 0)
        for told in found.values()
    )
    return {"files": total, "kinds": found, "findings": findings}


if __name__ == "__main__":
    torch.set_num_threads(1)
    told = try_all(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] or list(KINDS))
    print(json.dumps(told, indent=1))
    sys.exit(bool(told["findings"]))
