"""`edgewise store build` and `store info`: a graph on disk, for data that does not fit into memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import terminal
from edgewise.cli.guard import guarded
from edgewise.text import counted

if TYPE_CHECKING:
    import edgewise as ew

STORE_EPILOG = """Examples:

edgewise store build tables/ graph.store

edgewise store info graph.store --verify

edgewise job run --model my_model:GCN --weights weights.pt --data graph.store --index test --top 50 --out job

Exit codes: 0 done, 1 bad input, 2 wrong usage."""

store_app = typer.Typer(no_args_is_help=True, help="Graphs on disk, of which only neighbourhoods are read.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, everything else on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@store_app.command(name="build", epilog=STORE_EPILOG)
def store_build(
    *,
    data: Annotated[
        Path, typer.Argument(help="An .npz, a .pt, or a folder with tables of nodes and edges (.csv, .parquet).")
    ],
    store: Annotated[Path, typer.Argument(help="The folder of the store; it must not be there yet.")],
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="For models whose messages go against the edges, or both ways.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a graph to a store, piece by piece; memory stays small whatever its size."""
    with guarded(debug=debug):
        import edgewise as ew
        from edgewise.store.store_builder import build

        notes = build(store.expanduser(), data, both_ways=both_ways)
        for note in () if quiet else notes:
            typer.echo(note, err=True)
        if not quiet:
            _show(ew.GraphStore(store), json=json)


@store_app.command(name="info")
def store_info(
    *,
    store: Annotated[Path, typer.Argument(help="The folder of the store.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file once and compare it with its digest.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """What is in a store: nodes, edges, attributes, names, its digest."""
    with guarded(debug=debug):
        import edgewise as ew

        found = ew.GraphStore(store)
        if verify:
            found.verify()
        if not quiet:
            _show(found, json=json)


def _show(store: "ew.GraphStore", *, json: bool) -> None:
    about = _about(store)
    if json:
        terminal.print_json({"command": "store", **about})
        return
    typer.echo(
        f"{store.path}: {counted(store.num_nodes, 'node')}, {counted(store.num_edges, 'edge')}, {about['bytes']} bytes"
    )
    typer.echo(f"SHA-256 {store.digest}")
    for what in ("nodes", "edges"):
        for name, table in about[what].items():
            told = ", ".join(f"{key} {shape}" for key, shape in table["attributes"].items()) or "no attributes"
            more = "; with ids" if table.get("ids") else "; with names" if table.get("names") else ""
            typer.echo(f"{name or what}: {table['count']}, {told}{more}")


def _about(store: "ew.GraphStore") -> dict[str, Any]:
    """What is in a store, ready for JSON."""
    nodes: dict[str, Any] = {}
    for kind in store.node_types:
        table = store.nodes(kind)
        nodes[kind] = {
            "count": table.count,
            "attributes": {name: list(array.shape) for name, array in table.attributes.items()},
            "ids": table.ids is not None,
            "names": table.names is not None,
        }
    edges = {
        "__".join(kind) if store.is_typed else "": {
            "count": store.edges(kind).count,
            "attributes": {name: list(array.shape) for name, array in store.edges(kind).attributes.items()},
            "both_ways": store.edges(kind).out_of is not None,
        }
        for kind in store.edge_types
    }
    path = str(store.path)
    return {"folder": path, "digest": store.digest, "bytes": store.num_bytes, "nodes": nodes, "edges": edges}
