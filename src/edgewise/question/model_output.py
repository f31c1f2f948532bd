"""What the model returns: logits, log-probabilities, probabilities or values, read off its last operation or stated."""

import warnings
from dataclasses import dataclass, replace

from edgewise.arguments import one_of
from edgewise.errors import OutputWarning, SettingError
from edgewise.model.call import ModelCall
from edgewise.model.head import OUTPUTS, Head, find_head, logits_of, looks_like_probabilities
from edgewise.model.trace import Trace


@dataclass(frozen=True)
class ModelOutput:
    """What the model returns, and how its logits are come by."""

    name: str
    """`"logit"`, `"log_prob"`, `"prob"` or `"value"`."""
    head: Head | None = None
    """The operation whose input is explained as the logit."""
    stated: bool = False
    """Whether `name` was given, and no operation that says so was seen."""

    def apply(self, call: ModelCall) -> ModelCall:
        """The call that gives logits."""
        return replace(call, head=self.head, stated=self.name if self.stated else "")

    def shorten(self, trace: Trace) -> Trace:
        """A recorded pass of the same model, as far as its logits."""
        if self.head is not None:
            found = find_head(trace)
            return trace if found is None else found[1]
        return replace(trace, output=logits_of(trace.output, self.name)) if self.stated else trace

    @property
    def several(self) -> bool:
        """Whether every column has a sigmoid of its own."""
        return self.head is not None and self.head.is_sigmoid

    @property
    def lost(self) -> str:
        """What `choose_target` is told: probabilities of several classes without their logits are marked."""
        return f"{self.name}, unseen" if self.stated else self.name


def check_output(output: str | None) -> str | None:
    """One of the four names, or None to read it off the model."""
    return None if output is None else one_of("output", output, OUTPUTS, also="or None to read it off the model")


def read_output(trace: Trace, given: str | None, mode: str | None) -> tuple[ModelOutput, Trace]:
    """What the model returns, and the recorded pass as far as the logits."""
    if given == "value" or (given is None and mode == "regression"):
        return ModelOutput("value"), trace
    found = None if given == "logit" else find_head(trace)
    if given is None and found is None:
        if looks_like_probabilities(trace.output):
            warnings.warn(
                "The model's output looks like probabilities, but the operation that makes them cannot be seen, so it is "
                "explained as logits. Use output='prob' (or output='logit' if these are logits).",
                OutputWarning,
                stacklevel=2,
            )
        return ModelOutput("logit"), trace
    if found is None:
        return (ModelOutput("logit"), trace) if given == "logit" else _stated(str(given), trace)
    head, shorter = found
    if given is not None and given != head.output:
        raise SettingError(
            f"`output` must be {head.output!r} for a model that ends with {head.function}, got {given!r}. Leave `output` out, "
            f"or use output='logit' to explain what the model returns as if it were logits."
        )
    return ModelOutput(head.output, head), shorter


def _stated(name: str, trace: Trace) -> tuple[ModelOutput, Trace]:
    """Probabilities without a head that could be seen: the recorded pass gives what the call will give."""
    found = ModelOutput(name, stated=True)
    return found, found.shorten(trace)
