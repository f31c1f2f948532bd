"""`edgewise ask`: what a question is about and what each method will cost, before any long work."""

import typer

from edgewise.cli.options import CommonOptions, with_common_options
from edgewise.cli.terminal import Voice

EPILOG = """Examples:

edgewise ask --data infection --index 0-19

edgewise ask --model my_model:GCN --weights weights.pt --data graph.npz --index test --json

Exit codes: 0 done, 1 bad input, 2 wrong usage."""


@with_common_options
def ask(asked: CommonOptions) -> None:
    """What would be explained, and what would it cost? Task, output, layers, agreement with the labels, seconds."""
    voice = Voice(quiet=asked.quiet)
    import edgewise as ew
    from edgewise.cli.read.cli_question import read_question
    from edgewise.cli.show import print_json

    read = read_question(asked, voice)
    question = ew.Question(read.model, read.graphs.data, read.index.tolist(), target=read.classes, **read.options)
    if asked.json:
        targets = [
            {"index": index, "target": target, "value": value}
            for index, target, value in zip(
                read.index.tolist(), question.target.tolist(), question.value.tolist(), strict=True
            )
        ]
        about = {"layers": question.num_layers, "way": question.way, "settings": dict(question.settings)}
        print_json({"command": "ask", **about, "targets": targets})
    elif not asked.quiet:
        typer.echo(str(question))
