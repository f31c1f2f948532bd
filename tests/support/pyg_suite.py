"""Runs PyG's own tests of `torch_geometric.explain` with `EdgewiseExplainer` in the place of its algorithms.

    python tests/support/pyg_suite.py PATH            # PATH: a checkout of pytorch_geometric; or: make pyg-suite PYG=PATH

The tests are read from the checkout and run as they are, against the torch_geometric that is installed; nothing is copied and
nothing is written there. Only the names of the algorithms are replaced before the test files are imported (`STAND_INS`). A case
counts if its test function names one of them. The cases that do not pass are listed with the reason (`REASONS`); the exit
status is 1 if one has none, or if fewer pass than `--at-least`.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch_geometric import explain

from edgewise import EdgewiseExplainer

_CAPTUM = {
    "Saliency": "gradient",
    "InputXGradient": "gradient",
    "Deconvolution": "gradient",
    "GuidedBackprop": "gradient",
    "IntegratedGradients": "integrated_gradients",
    "ShapleyValueSampling": "shapley",
}


def _of_captum(name: str, **settings: Any) -> EdgewiseExplainer:
    """The nearest method of ours; a name that has none goes to us as it is."""
    return EdgewiseExplainer(_CAPTUM.get(name, name))


STAND_INS: dict[str, Callable[..., EdgewiseExplainer]] = {
    "GNNExplainer": lambda epochs=100, lr=0.01, **_: EdgewiseExplainer("gnn_explainer", epochs=epochs, lr=lr),
    "GraphMaskExplainer": lambda num_layers, epochs=100, **_: EdgewiseExplainer(
        "gnn_explainer", level="layer", epochs=epochs
    ),
    "CaptumExplainer": _of_captum,
    "AttentionExplainer": lambda *_, **__: EdgewiseExplainer("gnn_explainer", epochs=5),
    "DummyExplainer": lambda: EdgewiseExplainer("random"),
}
"""PyG's algorithm → ours in its place. PGExplainer is left alone: its tests call a training of its own."""

REASONS = [
    (
        r"test_attention_explainer_supports|test_captum_explainer_supports",
        "DID NOT RAISE",
        "The test wants these settings refused; ours supports them.",
    ),
    (
        r"test_unsupported_methods",
        "Unknown method",
        "The test wants Captum's sentence about Captum's own names; ours refuses them in its own words.",
    ),
    (
        r"attentive_fp",
        "messages on edges between different nodes that the model added",
        "AttentiveFP's readout sends messages along edges that it makes itself: ours refuses them and names the layer.",
    ),
]
"""(name of the test, what its error says, why that is as it should be); the first that fits is given."""


@dataclass
class Case:
    """One case of PyG's tests."""

    name: str
    outcome: str = "passed"
    error: str = ""

    @property
    def reason(self) -> str:
        """Why it does not pass; empty if nothing is known."""
        fits = (why for name, text, why in REASONS if re.search(name, self.name) and re.search(text, self.error))
        return next(fits, "")


def uses_stand_in(function: Any) -> bool:
    """Whether a test names one of the algorithms that ours stands in for.

    >>> uses_stand_in(lambda: GNNExplainer(epochs=2)), uses_stand_in(lambda: PGExplainer())        # noqa: F821
    (True, False)
    """
    return bool(STAND_INS.keys() & set(function.__code__.co_names))


@dataclass
class Suite:
    """A plugin of pytest: puts ours in, leaves out the tests that use none of it, and notes the outcomes."""

    cases: dict[str, Case] = field(default_factory=dict)
    left_out: int = 0
    _theirs: list[tuple[Any, str, Any]] = field(default_factory=list)

    def put_in(self) -> None:
        """Replace the names; the test files are imported afterwards."""
        for module in (explain, explain.algorithm):
            for name, ours in STAND_INS.items():
                if hasattr(module, name):
                    self._theirs.append((module, name, getattr(module, name)))
                    setattr(module, name, ours)

    def put_back(self) -> None:
        """PyG's algorithms again."""
        while self._theirs:
            setattr(*self._theirs.pop())

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the cases in which ours stands in."""
        kept = [item for item in items if uses_stand_in(item.function)]  # type: ignore[attr-defined]
        self.left_out = len(items) - len(kept)
        items[:] = kept

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note what became of a case: the worst of its phases."""
        case = self.cases.setdefault(report.nodeid, Case(report.nodeid))
        if report.outcome != "passed":
            case.outcome, case.error = report.outcome, _last_line(report.longrepr)


def _last_line(error: Any) -> str:
    """What an error says, in one line."""
    crash = getattr(error, "reprcrash", None)
    text = crash.message if crash is not None else str(error[-1] if isinstance(error, tuple) else error)
    return " ".join(text.split())


def summary(cases: list[Case], left_out: int) -> str:
    """The report: how many pass, and the others, reason by reason."""
    count = Counter(case.outcome for case in cases)
    lines = [
        f"{len(cases)} cases in which EdgewiseExplainer stands in: "
        + ", ".join(
            f"{number} {outcome}" for outcome, number in sorted(count.items(), key=lambda one: one[0] != "passed")
        ),
        f"{left_out} cases of the same files use no algorithm that it stands in for, and were left out",
    ]
    others = [case for case in cases if case.outcome != "passed"]
    for reason, number in Counter(case.reason for case in others).most_common():
        lines += ["", f"{number} × {reason or 'NO REASON IS KNOWN'}"]
        lines += [f"    {case.name.split('/')[-1]}  {case.error[:160]}" for case in others if case.reason == reason]
    return "\n".join(lines)


def run(checkout: Path, arguments: list[str]) -> Suite:
    """Run the tests of a checkout."""
    tests, settings = checkout / "test" / "explain", checkout / "pyproject.toml"
    if not tests.is_dir():
        raise SystemExit(f"{tests} is not there. Give the path of a checkout of pytorch_geometric.")
    suite = Suite()
    sys.dont_write_bytecode = True
    options = ["-o", "addopts=", "-p", "no:cacheprovider", "-q", "--tb=short", "--rootdir", str(checkout)]
    if settings.is_file():
        options += ["-c", str(settings)]
    suite.put_in()
    try:
        pytest.main([str(tests), *options, *arguments], plugins=[suite])
    finally:
        suite.put_back()
    return suite


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of pytorch_geometric")
    parser.add_argument("--at-least", type=int, default=1850, help="how many cases must pass (1850)")
    known, arguments = parser.parse_known_args()
    suite = run(known.checkout.resolve(), arguments)
    cases = list(suite.cases.values())
    print("\n" + summary(cases, suite.left_out))
    passed = [case for case in cases if case.outcome == "passed"]
    unknown = [case for case in cases if case.outcome != "passed" and not case.reason]
    return 1 if unknown or len(passed) < known.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
