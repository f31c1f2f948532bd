"""Walks: from which source, through which nodes, in which layer information reached the explained node.

The files are a pipeline; read them in this order. `edgewise.examples.triangle_model` is the worked example of all of them.

1. `record.py`: the model on its graph as a program with every activation; `tangents.py`: what an encoder in front of the first
   layer makes of the features.
2. `chain.py`: the program cut into states, so that one call leads from state to state.
3. `geometry.py`: the pairs (sender, receiver) of a call. `blocks.py`: one Jacobian block per pair, kept by its factors.
   `block_builder.py`: where the factors come from, layer by layer.
4. `lrp.py`: node-wise steps under the gradient or an LRP rule. `calls.py`: geometry, blocks and sums of each call by itself.
   `node_jacobians.py`: what happens at nodes between the calls, differentiated.
5. `network.py`: all of it together; with `prefixes.py` (walks under way) it is all that a search sees.
6. `bounds.py`: what a prefix can still bring. `search/`: the searches, `search/exact.py` first. `sums.py`: sums over walks.
7. `target_blocks.py`: the networks of a question, some targets at a time. `api/walks.py` and `api/walk_relevance.py` call it.
"""
