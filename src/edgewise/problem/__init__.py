"""What is asked: a subject, the targets in it, and their classes. `pose` checks the question and gives a `Problem`."""

from edgewise.problem.base import KEPT, Problem, sub_target
from edgewise.problem.graphs import GraphProblem
from edgewise.problem.nodes import NodeProblem
from edgewise.problem.posing import pose

__all__ = ["KEPT", "GraphProblem", "NodeProblem", "Problem", "pose", "sub_target"]
