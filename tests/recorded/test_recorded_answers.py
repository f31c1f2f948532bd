"""Today's answers are the recorded ones, to rounding; see `tests/support/recorded_answers.py`."""

import fnmatch
from dataclasses import replace

import pytest

import edgewise as ew
import recorded_answers
from pyg_versions import GENERAL_RUNS, HAS_RESIDUAL
from recorded_answers import FLOOR, GROUPS, LARGER, METHODS, TOLERANCE, Answer, differences, today

ANSWERED_SINCE: dict[str, str] = {}
"""Names (with wildcards) of answers that were refused when they were recorded and may be given now, and why; the next
`--write` makes a row of this table needless. It excuses no number."""
RECORDED = recorded_answers.recorded()
LACKING = [name for name, runs in {"node/gat residual": HAS_RESIDUAL, "node/general": GENERAL_RUNS}.items() if not runs]
"""Groups whose model the installed PyG cannot make or run."""


def of_group(group):
    return {name: answer for name, answer in RECORDED.items() if name.startswith(f"{group}: ")}


def unexcused(old, new, table):
    """What differs, without refusals that the table lets become answers."""

    def excused(name):
        known = any(fnmatch.fnmatch(name, pattern) for pattern in table)
        was_refused = name not in old or bool(old[name].refused)
        return known and was_refused and not (name in new and new[name].refused)

    return {name: said for name, said in differences(old, new).items() if not excused(name)}


@pytest.mark.parametrize("group", GROUPS)
def test_answers_are_the_recorded_ones(group):
    if group in LACKING:
        pytest.skip("this PyG cannot make or run such a layer")
    found = unexcused(of_group(group), today(group), ANSWERED_SINCE)
    assert not found, "\n".join(f"{name}  {said}" for name, said in found.items())


def test_every_recorded_answer_is_asked_again():
    assert {name.split(": ")[0] for name in RECORDED} == set(GROUPS)
    assert sum(len(answer.numbers) for answer in RECORDED.values()) > 10_000


def test_every_method_is_recorded():
    assert set(METHODS) | {"auto"} == set(ew.methods())


def test_the_file_is_small_enough_to_be_recorded_again_and_again():
    assert recorded_answers.FILE.stat().st_size < 2**20


ANSWER = Answer("a", 3, 2.0, (1.0, -2.0, 0.5))


@pytest.mark.parametrize(
    "other",
    [
        replace(ANSWER, numbers=(1.0, -2.0, 0.5 + 5e-9)),
        replace(ANSWER, size=4, numbers=(1.0, -2.0, 0.5, 0.0)),
        replace(ANSWER, size=0, numbers=(), refused="ModelError"),
        replace(ANSWER, numbers=(1.0, -2.0, float("nan"))),
    ],
)
def test_another_answer_is_noticed(other):
    assert ANSWER.difference(other)
    assert other.difference(ANSWER)
    assert unexcused({"a": ANSWER}, {"a": other}, {"a": "no excuse for a number"}) == {"a": ANSWER.difference(other)}


def test_rounding_is_not():
    assert not ANSWER.difference(replace(ANSWER, numbers=(1.0, -2.0, 0.5 + 1e-9)))
    tiny = Answer("a", 1, 1e-18, (1e-18,))
    assert not tiny.difference(replace(tiny, numbers=(0.1 * FLOOR * TOLERANCE,), largest=0.1 * FLOOR * TOLERANCE))


def test_one_changed_entry_of_a_long_answer_changes_what_is_kept():
    long = [float(number) for number in range(100)]
    changed = [*long[:57], long[57] + 1e-6, *long[58:]]
    assert Answer.of("a", lambda: long).difference(Answer.of("a", lambda: changed))
    assert not Answer.of("a", lambda: long).difference(Answer.of("a", lambda: list(long)))
    swapped = [*long[:56], long[57], long[56], *long[58:]]
    assert Answer.of("a", lambda: long).difference(Answer.of("a", lambda: swapped))


def test_a_refusal_becomes_an_answer_only_where_the_table_says_so():
    refused = {"node/x: question": Answer("node/x: question", 0, 0.0, refused="ModelError")}
    answered = {"node/x: value": ANSWER}
    assert set(unexcused(refused, answered, {})) == {"node/x: question", "node/x: value"}
    assert not unexcused(refused, answered, {"node/x: *": "any model"})
    assert unexcused(answered, refused, {"node/x: *": "any model"})


def test_larger_tolerances_are_used_and_have_reasons():
    unused = [pattern for pattern in LARGER if not fnmatch.filter(RECORDED, pattern)]
    assert not unused
    assert all(found <= 1e-6 and len(why.split()) > 4 for found, why in LARGER.values())
