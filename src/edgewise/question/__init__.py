"""What is asked: a subject, the targets in it, and their classes. `pose` checks the question and gives a `Question`."""

from edgewise.question.graph_question import GraphQuestion
from edgewise.question.node_question import NodeQuestion
from edgewise.question.pose import pose
from edgewise.question.question import KEPT, Question, sub_target

__all__ = ["KEPT", "GraphQuestion", "NodeQuestion", "Question", "pose", "sub_target"]
