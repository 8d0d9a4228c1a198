# tools/python/graph_export/__init__.py -- the parts of export_graph.py.
# SPDX-License-Identifier: Apache-2.0
"""The parts of export_graph.py, a module each, in this order: options, the model, its trace, the rows of the file."""
