"""What is asked: a subject, the targets in it, and their classes. `pose` checks the question and gives a `PosedQuestion`."""

from edgewise.question.graph_question import GraphQuestion
from edgewise.question.node_question import NodeQuestion
from edgewise.question.pose import pose
from edgewise.question.posed_question import KEPT, PosedQuestion, sub_target

__all__ = ["KEPT", "GraphQuestion", "NodeQuestion", "PosedQuestion", "pose", "sub_target"]
