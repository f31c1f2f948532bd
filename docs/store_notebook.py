"""Run the cells of examples/notebook.ipynb and store what they show: texts, tables, and pictures made small.

`python docs/store_notebook.py` writes the notebook again; a code host then shows it with its pictures.
"""

import ast
import base64
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"
COLOURS = 64
"""Of a stored picture: lines and letters need no more."""


def main() -> None:
    """Run all cells in order, and write the notebook."""
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    count = 0
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"], cell["outputs"] = count, outputs_of("".join(cell["source"]), names, count)
    NOTEBOOK.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def outputs_of(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, and its last line if that is an expression."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = None if last is None else eval(compile(last, "cell", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    return found if value is None else [*found, *_shown(value, count)]


def _shown(value: Any, count: int) -> list[dict[str, Any]]:
    """A result as text and HTML, and its picture by itself."""
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    html = value._repr_html_() if hasattr(value, "_repr_html_") else ""
    picture = re.search(r'<img[^>]*base64,([^"]+)">', html)
    if html:
        data["text/html"] = re.sub(r"<img[^>]*>", "", html).splitlines(keepends=True)
    found = [{"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}}]
    if picture:
        image = {"image/png": _small(picture[1]), "text/plain": ["a picture"]}
        found.append({"output_type": "display_data", "data": image, "metadata": {}})
    return found


def _small(picture: str) -> str:
    """The same picture with few colours."""
    from PIL import Image

    file = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    image.quantize(COLOURS).save(file, format="png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    main()
